// Types of @NAME@.mjs.

export interface Tensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  /** real = scale * (element - zeroPoint); null: elements are real numbers. */
  readonly scale: number | null;
  readonly zeroPoint: number | null;
  readonly elements: number;
  readonly bytes: number;
  /** In the arena. */
  readonly offset: number;
}

export declare const info: {
  readonly name: string;
  readonly version: string;
  readonly modelSha256: string;
  readonly macs: number;
  readonly arenaBytes: number;
  readonly weightsBytes: number;
  /** Of the module, its stack included. */
  readonly memoryBytes: number;
  readonly keepsState: boolean;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
};

/** Why a model was not loaded, or did not run. */
export declare class UtvmError extends Error {}

export declare class Net {
  private constructor();
  readonly simd: boolean;
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  /** The outputs for the inputs, as elements; UtvmError for inputs of other types or lengths. */
  run(@INPUT_TYPES@): @OUTPUT_TYPES@;
  /** Clear what a model keeps between runs. */
  reset(): void;
  /** Elements of an input for real numbers. */
  quantize(values: ArrayLike<number>, index?: number): @ELEMENT_TYPES@;
  /** Real numbers of an output's elements. */
  dequantize(elements: ArrayLike<number | bigint>, index?: number): Float32Array;
}

export interface LoadOptions {
  /** Bytes of the module, or the module; without it, the file next to this one. */
  module?: BufferSource | WebAssembly.Module;
  /** Which file is taken; without it, what the engine can. */
  simd?: boolean;
}

/** UtvmError if the module cannot be loaded. */
export declare function load(options?: LoadOptions): Promise<Net>;
export declare function hasSimd(): boolean;

/** What differs from the samples of selftest.json, or null. */
export declare function firstMismatch(net: Net, golden: unknown): string | null;
