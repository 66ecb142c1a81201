// @NAME@: @MODEL_FILE@ as WebAssembly, by utvm_deploy @VERSION@. Equal to the board, byte for byte.
//
//     import { load } from "./@NAME@.mjs";
//     const net = await load();
//     const output = net.run(input);
//
// SPDX-License-Identifier: Apache-2.0

/** What is known of the model: its tensors, and where they are in the arena. */
const info = @INFO@;

@NET_JS@

async function read(url) {
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return readFile(url);
  }
  const response = await fetch(url);
  if (!response.ok) throw new UtvmError(`${url} cannot be loaded: ${response.status}`);
  return response.arrayBuffer();
}

/** Load the model: with SIMD where the engine has it, or as the options say. */
export async function load(options = {}) {
  const simd = options.simd ?? hasSimd();
  const file = simd
    ? new URL("./@NAME@.wasm", import.meta.url) : new URL("./@NAME@.scalar.wasm", import.meta.url);
  return instantiate(options.module ?? (await read(file)), simd);
}

export { UtvmError, Net, firstMismatch, hasSimd, info };
