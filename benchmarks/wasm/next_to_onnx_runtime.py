"""Milliseconds in a browser, next to ONNX Runtime Web, in one run of one headless Chromium.

    python benchmarks/wasm/next_to_onnx_runtime.py MODEL.tflite... [--packages DIR] [--rounds N]

Needs Node's npm, Chromium with its driver, selenium and onnx. DIR has npm's ``node_modules`` with
onnxruntime-web; without it, npm installs that into a temporary folder. Each model runs in three
forms: our module (its SIMD variant), and ONNX Runtime's own kernels for the same net as QDQ int8
and as float32 (``as_onnx.py``). All run in one thread, and take turns. A row has the fastest round
of each, in ms for each run, and the bytes that a page loads.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from as_onnx import as_onnx
from selenium.webdriver.support.ui import WebDriverWait

import utvm_deploy

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "screenshots"))
from chromium import chromium, missing  # noqa: E402

PACKAGE = "onnxruntime-web"
#: A round runs a form for this long: clocks of browsers are coarse.
ROUND_MS = 50
NPM_S, READY_S, SCRIPT_S = 300, 60, 600
PAGE = """<!doctype html><meta charset="utf-8"><title>wait</title><script type="module">
import * as ort from "/ort/ort.wasm.min.mjs";
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = "/ort/";
const forms = async (folder, name) => {
  const ours = await import(`/${folder}/bundle/${name}.mjs`);
  const golden = await (await fetch(`/${folder}/bundle/selftest.json`)).json();
  const net = await ours.load(), wrong = ours.firstMismatch(net, golden);
  if (wrong) throw new Error(wrong);
  const { shape, scale, zeroPoint } = ours.info.inputs[0];
  const bytes = Uint8Array.from(atob(golden.samples[0].inputs[0]), (c) => c.charCodeAt(0));
  const input = new Int8Array(bytes.buffer);
  const real = Float32Array.from(input, (x) => scale * (x - zeroPoint));
  const int8 = await ort.InferenceSession.create(`/${folder}/int8.onnx`);
  const float = await ort.InferenceSession.create(`/${folder}/float.onnx`);
  return {
    ours: async () => net.run(input),
    int8: async () => int8.run({ input: new ort.Tensor("int8", input, shape) }),
    float32: async () => float.run({ input: new ort.Tensor("float32", real, shape) }),
  };
};
window.measure = async (folder, name, rounds, roundMs) => {
  const all = await forms(folder, name), best = {};
  for (let round = 0; round <= rounds; round++) {
    for (const [form, run] of Object.entries(all)) {
      const begin = performance.now();
      let runs = 0;
      do { await run(); runs++; } while (performance.now() - begin < roundMs);
      const took = (performance.now() - begin) / runs;
      // The first round compiles and warms up.
      if (round) best[form] = Math.min(best[form] ?? Infinity, took);
    }
  }
  return best;
};
document.title = "ready";
</script>"""
MEASURE = """
const done = arguments[arguments.length - 1];
measure(...[...arguments].slice(0, -1)).then(done, (error) => done({ error: String(error) }));
"""


class _Handler(SimpleHTTPRequestHandler):
    """Pages that are isolated have a clock of 5 microseconds."""

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def _packages(given: Path | None, folder: Path) -> Path:
    if given is not None:
        return given
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE]
    subprocess.run(command, cwd=folder, check=True, timeout=NPM_S, stdout=subprocess.DEVNULL)
    return folder / "node_modules"


def _make(model: Path, folder: Path) -> str:
    """The three forms of a model; its name in C and JavaScript."""
    folder.mkdir()
    made = utvm_deploy.bundle(model, "wasm", folder / "bundle", format="wasm", latency=False)
    for name, is_quantized in (("int8", True), ("float", False)):
        (folder / f"{name}.onnx").write_bytes(as_onnx(model, is_quantized=is_quantized))
    return made.compiled.name


def measure(models: Sequence[Path], packages: Path, site: Path, rounds: int) -> list[Any]:
    """A row for each model: its name, ms by form, and bytes of our module and the ONNX file."""
    (site / "ort").symlink_to((packages / PACKAGE / "dist").resolve())
    (site / "index.html").write_text(PAGE)
    names = [_make(model, site / str(number)) for number, model in enumerate(models)]
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rows: list[Any] = []
    try:
        with chromium(site) as browser:
            browser.set_script_timeout(SCRIPT_S)
            browser.get(f"http://127.0.0.1:{server.server_port}/")
            WebDriverWait(browser, READY_S).until(lambda driver: driver.title == "ready")
            for number, name in enumerate(names):
                best = browser.execute_async_script(MEASURE, str(number), name, rounds, ROUND_MS)
                if "error" in best:
                    raise SystemExit(f"{name}: {best['error']}")
                sizes = [
                    site / str(number) / "bundle" / f"{name}.wasm",
                    site / str(number) / "int8.onnx",
                ]
                rows.append((name, best, [path.stat().st_size for path in sizes]))
    finally:
        server.shutdown()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    if missing():
        raise SystemExit(missing())
    with tempfile.TemporaryDirectory() as folder:
        packages = _packages(given.packages, Path(folder))
        site = Path(folder) / "site"
        site.mkdir()
        rows = measure(given.models, packages, site, given.rounds)
        version = json.loads((packages / PACKAGE / "package.json").read_text())["version"]
        engine = (packages / PACKAGE / "dist" / "ort-wasm-simd-threaded.wasm").stat().st_size
    print(f"{PACKAGE} {version}, whose engine has {engine:,} bytes; one thread")
    print("| model | ours, ms | int8, ms | float32, ms | ours, bytes | int8 ONNX, bytes |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, best, sizes in rows:
        times = " | ".join(f"{best[form]:.3f}" for form in ("ours", "int8", "float32"))
        print(f"| {name} | {times} | {' | '.join(f'{size:,}' for size in sizes)} |")


if __name__ == "__main__":
    main()
