/** Why a model was not loaded, or did not run. */
class UtvmError extends Error {
  constructor(message, options) {
    super(message, options);
    this.name = "UtvmError";
  }
}

const ARRAYS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
  float32: Float32Array,
};
const LIMITS = {
  int8: [-128, 127], uint8: [0, 255], int16: [-32768, 32767], uint16: [0, 65535],
  int32: [-2147483648, 2147483647], uint32: [0, 4294967295], bool: [0, 1],
};

/** Whether this engine has SIMD: it takes a function that makes a vector. */
function hasSimd() {
  return WebAssembly.validate(new Uint8Array([
    0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0,
    10, 9, 1, 7, 0, 65, 0, 253, 15, 26, 11,
  ]));
}

function tensor(list, index, what) {
  if (!(index in list)) throw new UtvmError(`${info.name} has no ${what} ${index}`);
  return list[index];
}

/** A loaded model. Nets are independent of each other. */
class Net {
  constructor(instance, simd) {
    this.simd = simd;
    this.inputs = info.inputs;
    this.outputs = info.outputs;
    this.exports = instance.exports;
    this.arena = instance.exports.utvm_arena();
    this.reset();
  }

  /** Clear what a model keeps between runs. */
  reset() {
    this.exports.utvm_reset();
  }

  /** The outputs' elements for the inputs' elements: an array, or a list of them. */
  run(...given) {
    if (given.length !== info.inputs.length) {
      throw new UtvmError(`${info.name} takes ${info.inputs.length} input(s), not ${given.length}`);
    }
    const memory = this.exports.memory.buffer;
    info.inputs.forEach((one, index) => {
      const array = given[index], kind = ARRAYS[one.dtype];
      if (!(array instanceof kind) || array.length !== one.elements) {
        const got = array?.constructor?.name ?? typeof array;
        throw new UtvmError(
          `input ${index} is a ${kind.name} of ${one.elements} elements, not ${got} of ` +
          `${array?.length}; quantize() makes one of real numbers`);
      }
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      new Uint8Array(memory, this.arena + one.offset, one.bytes).set(bytes);
    });
    try {
      this.exports.utvm_run();
    } catch (error) {
      throw new UtvmError(`${info.name} was stopped: ${error.message}`, { cause: error });
    }
    const found = info.outputs.map((one) => {
      const at = this.arena + one.offset;
      return new ARRAYS[one.dtype](memory.slice(at, at + one.bytes));
    });
    return found.length === 1 ? found[0] : found;
  }

  /** Elements of an input for real numbers: the nearest ones that the input can have. */
  quantize(values, index = 0) {
    const one = tensor(info.inputs, index, "input"), to = new ARRAYS[one.dtype](one.elements);
    if (values.length !== one.elements) {
      throw new UtvmError(`input ${index} has ${one.elements} elements, not ${values.length}`);
    }
    if (one.scale === null) {
      const big = one.dtype.endsWith("int64");
      return to.map((_, i) => (big ? BigInt(values[i]) : values[i]));
    }
    const [low, high] = LIMITS[one.dtype];
    return to.map((_, i) => {
      const real = Math.fround(Math.fround(values[i]) / Math.fround(one.scale));
      const whole = Math.sign(real) * Math.floor(Math.abs(real) + 0.5) + one.zeroPoint;
      return Math.min(high, Math.max(low, whole));
    });
  }

  /** Real numbers of an output's elements. */
  dequantize(elements, index = 0) {
    const one = tensor(info.outputs, index, "output");
    if (one.scale === null) return Float32Array.from(elements, Number);
    return Float32Array.from(elements, (x) => one.scale * (x - one.zeroPoint));
  }
}

/** A net of a module's bytes, or of a WebAssembly.Module. */
async function instantiate(module, simd) {
  try {
    const found = await WebAssembly.instantiate(module, {});
    return new Net(found.instance ?? found, simd);
  } catch (error) {
    throw new UtvmError(
      `the module of ${info.name} cannot be loaded: ${error.message}; it needs ` +
      `${info.memoryBytes} bytes of memory`, { cause: error });
  }
}

const fromBase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));

/** For each golden sample of a self-test: null, or what differs first. */
function mismatches(net, golden) {
  net.reset();
  return golden.samples.map((sample, number) => {
    const inputs = sample.inputs.map((text, i) =>
      new ARRAYS[info.inputs[i].dtype](fromBase64(text).buffer));
    const found = [net.run(...inputs)].flat();
    for (const [index, text] of sample.outputs.entries()) {
      const expected = new ARRAYS[info.outputs[index].dtype](fromBase64(text).buffer);
      const largest = golden.tolerance && info.outputs[index].dtype === "float32"
        ? golden.tolerance * Math.max(...expected.filter(Number.isFinite).map(Math.abs), 0) : 0;
      const at = found[index].findIndex((x, i) =>
        !Object.is(x, expected[i]) && !(largest && Math.abs(x - expected[i]) <= largest));
      if (at >= 0) {
        return `sample ${number}, output ${index}, element ${at}: got ${found[index][at]}, ` +
          `expected ${expected[at]}`;
      }
    }
    return null;
  });
}

/** What differs from the golden samples first, or null. */
function firstMismatch(net, golden) {
  return mismatches(net, golden).find((one) => one !== null) ?? null;
}
