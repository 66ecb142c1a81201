// Runs the model whose JSON the page holds (bundling/browser.py makes it): its modules and samples.
const MODEL = JSON.parse(document.getElementById("utvm-model").textContent);
const { info } = MODEL;
const at = (id) => document.getElementById(id);
const first = info.inputs[0];
const shape = first.shape.slice(first.shape.length > 1 && first.shape[0] === 1 ? 1 : 0);
const channels = shape.length === 3 ? shape[2] : shape.length === 2 ? 1 : 0;
const isOne = info.inputs.length === 1;
const kind = !isOne ? "numbers" : shape.length >= 2 && shape.length <= 3 && channels === 1
  ? (shape[1] > 1 ? "drawing" : "sound") : channels === 3 && shape.length === 3 ? "camera"
  : shape.length === 1 ? "sound" : "numbers";
const [height, width] = shape;
const MOST_ROWS = 1000;
const LEAST_MS = 20;
let net = null;

function fail(error) {
  at("error").textContent = error?.message ?? String(error);
}

/** Elements for numbers from 0 (black, silence at the bottom) to 1: the whole range of the input. */
function spread(values) {
  const limits = LIMITS[first.dtype];
  if (!limits || first.dtype === "int32" || first.scale === null) return net.quantize(values);
  const [low, high] = limits, to = new ARRAYS[first.dtype](first.elements);
  return to.map((_, i) => Math.round(low + values[i] * (high - low)));
}

function show(outputs) {
  const table = at("classes");
  table.replaceChildren();
  outputs.forEach((elements, index) => {
    const real = net.dequantize(elements, index), most = Math.max(...real.map(Math.abs), 1e-9);
    let best = 0;
    real.forEach((x, i) => { if (x > real[best]) best = i; });
    real.slice(0, MOST_ROWS).forEach((x, i) => {
      const row = table.insertRow(), name = document.createElement("th"), bar = row.insertCell();
      const fill = document.createElement("div");
      name.textContent = outputs.length > 1 ? `${index}: ${i}` : i;
      row.className = i === best ? "best" : "";
      row.prepend(name);
      bar.className = "bar";
      fill.style.width = `${100 * Math.max(x, 0) / most}%`;
      bar.append(fill);
      row.insertCell().textContent = x.toPrecision(4);
    });
  });
}

function run(...inputs) {
  at("error").textContent = "";
  try {
    let runs = 0, outputs = [];
    const begin = performance.now();
    // The clock of a browser is coarse; a model that keeps state runs once.
    do {
      outputs = [net.run(...inputs)].flat();
      runs++;
    } while (!info.keepsState && performance.now() - begin < LEAST_MS);
    const took = (performance.now() - begin) / runs;
    at("time").textContent = `${took.toFixed(2)} ms, ${net.simd ? "SIMD" : "scalar"}`;
    at("values").value = inputs.map((one) => one.join(" ")).join("\n");
    show(outputs);
    return outputs;
  } catch (error) {
    fail(error);
    return null;
  }
}

/** Means of the squares of a picture that become pixels, from 0 to 1, channel by channel. */
function pixels(source, sx, sy, sw, sh) {
  const per = 8, canvas = document.createElement("canvas");
  canvas.width = width * per;
  canvas.height = height * per;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(source, sx, sy, sw, sh, 0, 0, canvas.width, canvas.height);
  const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Float32Array(width * height * channels);
  for (let y = 0; y < canvas.height; y++) {
    for (let x = 0; x < canvas.width; x++) {
      const from = 4 * (y * canvas.width + x);
      const to = channels * (Math.floor(y / per) * width + Math.floor(x / per));
      const [r, g, b] = [data[from], data[from + 1], data[from + 2]];
      const parts = channels === 1 ? [0.299 * r + 0.587 * g + 0.114 * b] : [r, g, b];
      parts.forEach((part, c) => { found[to + c] += part / (255 * per * per); });
    }
  }
  return found;
}

/** The largest part in the middle of a picture that has the input's form. */
function middle(source, w, h) {
  const scale = Math.min(w / width, h / height), sw = width * scale, sh = height * scale;
  return pixels(source, (w - sw) / 2, (h - sh) / 2, sw, sh);
}

function startDrawing() {
  const canvas = at("draw"), context = canvas.getContext("2d", { willReadFrequently: true });
  canvas.height = Math.round(canvas.width * height / width);
  context.lineCap = context.lineJoin = "round";
  let box = null;
  const clear = () => {
    context.fillStyle = "#000";
    context.fillRect(0, 0, canvas.width, canvas.height);
    box = null;
  };
  const place = (event) => {
    const area = canvas.getBoundingClientRect(), unit = canvas.width / area.width;
    return [(event.clientX - area.left) * unit, (event.clientY - area.top) * unit];
  };
  const read = () => {
    if (!box) return;
    let [x0, y0, x1, y1] = [0, 0, canvas.width, canvas.height];
    if (at("fit").checked) {
      const pad = context.lineWidth / 2, middleX = (box[0] + box[2]) / 2;
      const middleY = (box[1] + box[3]) / 2;
      const scale = Math.max((box[2] - box[0] + 2 * pad) / width, (box[3] - box[1] + 2 * pad) / height);
      [x0, x1] = [middleX - scale * width / 2, middleX + scale * width / 2];
      [y0, y1] = [middleY - scale * height / 2, middleY + scale * height / 2];
    }
    const found = pixels(canvas, x0, y0, x1 - x0, y1 - y0);
    run(spread(at("dark").checked ? found.map((x) => 1 - x) : found));
  };
  clear();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    context.lineWidth = canvas.width / 9;
    context.strokeStyle = "#fff";
    context.beginPath();
    context.moveTo(...place(event));
    canvas.onpointermove = (moved) => {
      const [x, y] = place(moved);
      box = box ? [Math.min(box[0], x), Math.min(box[1], y), Math.max(box[2], x), Math.max(box[3], y)]
        : [x, y, x, y];
      context.lineTo(x, y);
      context.stroke();
    };
    canvas.onpointermove(event);
  });
  canvas.addEventListener("pointerup", () => { canvas.onpointermove = null; read(); });
  at("clear").onclick = clear;
  at("fit").onchange = at("dark").onchange = read;
}

function startCamera() {
  const video = at("video");
  at("start").onclick = async () => {
    try {
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: true });
      await video.play();
    } catch (error) {
      fail(`no camera (${error.message}): take a file`);
    }
  };
  at("take").onclick = () => {
    if (!video.videoWidth) return fail("the camera shows nothing yet: start it, or take a file");
    run(spread(middle(video, video.videoWidth, video.videoHeight)));
  };
}

/** A recording from -1 to 1 as the input: its first samples, then silence. */
function runSound(samples) {
  const values = new Float32Array(first.elements);
  values.set(samples.subarray(0, first.elements));
  run(first.scale === null ? net.quantize(values) : spread(values.map((x) => (x + 1) / 2)));
}

function startSound() {
  at("record").onclick = async () => {
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const context = new AudioContext({ sampleRate: 16000 });
      const node = context.createScriptProcessor(4096, 1, 1), parts = [];
      node.onaudioprocess = (event) => {
        parts.push(...event.inputBuffer.getChannelData(0));
        if (parts.length < first.elements) return;
        node.disconnect();
        stream.getTracks().forEach((track) => track.stop());
        context.close();
        runSound(Float32Array.from(parts));
      };
      context.createMediaStreamSource(stream).connect(node);
      node.connect(context.destination);
    } catch (error) {
      fail(`no microphone (${error.message}): take a file`);
    }
  };
}

async function openFile(file) {
  if (kind === "sound") {
    const context = new OfflineAudioContext(1, first.elements, 16000);
    return runSound((await context.decodeAudioData(await file.arrayBuffer())).getChannelData(0));
  }
  const picture = await createImageBitmap(file);
  return run(spread(middle(picture, picture.width, picture.height)));
}

/** Elements of each input: a line each, as many numbers as it has. */
function runNumbers() {
  try {
    const words = at("values").value.split(/[\s,;]+/).filter(Boolean);
    const total = info.inputs.reduce((sum, one) => sum + one.elements, 0);
    if (words.length !== total) throw new UtvmError(`${total} numbers are needed, not ${words.length}`);
    let from = 0;
    run(...info.inputs.map((one) => {
      const part = words.slice(from, from += one.elements), limits = LIMITS[one.dtype];
      const isBig = one.dtype.endsWith("int64");
      const numbers = part.map((word) => (isBig ? BigInt(word) : Number(word)));
      const bad = numbers.find((x) => Number.isNaN(x)
        || (limits && (x < limits[0] || x > limits[1] || x % 1)));
      if (bad !== undefined) throw new UtvmError(`an element of ${one.dtype} cannot be ${bad}`);
      return ARRAYS[one.dtype].from(numbers);
    }));
  } catch (error) {
    fail(error);
  }
}

async function begin() {
  const simd = hasSimd();
  net = await instantiate(fromBase64(MODEL.modules[simd ? "simd" : "scalar"]), simd);
  const found = mismatches(net, MODEL.golden), wrong = found.filter((one) => one !== null);
  net.reset();
  const within = MODEL.golden.tolerance
    ? ` within ${MODEL.golden.tolerance} of the largest magnitude` : "";
  at("selftest").textContent = `${found.length - wrong.length} of ${found.length} samples equal ` +
    `to the reference${within}${wrong.length ? `; ${wrong[0]}` : ""}`;
  at("facts").textContent = `${info.macs.toLocaleString("en")} multiply-accumulates, ` +
    `${info.weightsBytes.toLocaleString("en")} bytes of weights, input ${first.dtype} ` +
    `[${first.shape.join(", ")}]`;
  if (kind === "numbers") at("numbers").open = true;
  else at(kind).hidden = at("files").hidden = false;
  ({ drawing: startDrawing, camera: startCamera, sound: startSound }[kind] ?? (() => {}))();
  at("file").accept = kind === "sound" ? "audio/*" : "image/*";
  at("file").onchange = (event) => openFile(event.target.files[0]).catch(fail);
  at("paste").onclick = runNumbers;
  document.body.dataset.ready = "yes";
}

begin().catch((error) => { at("selftest").textContent = "not run"; fail(error); });
