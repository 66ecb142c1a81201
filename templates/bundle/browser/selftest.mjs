// Runs the golden samples with and without SIMD: node selftest.mjs
//
// SPDX-License-Identifier: Apache-2.0
import { readFile } from "node:fs/promises";
import { firstMismatch, hasSimd, load } from "./@NAME@.mjs";

const golden = JSON.parse(await readFile(new URL("./selftest.json", import.meta.url), "utf8"));
for (const simd of hasSimd() ? [true, false] : [false]) {
  const wrong = firstMismatch(await load({ simd }), golden);
  const how = simd ? "SIMD" : "scalar";
  console.log(wrong === null
    ? `PASS @NAME@ (${how}): ${golden.samples.length} sample(s), @PASSED@`
    : `FAIL @NAME@ (${how}): ${wrong}`);
  if (wrong !== null) process.exitCode = 1;
}
