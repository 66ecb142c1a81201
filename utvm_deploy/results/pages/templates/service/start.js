// Improves the form that starts jobs: drag and drop, and only options of the chosen jobs.
for (const form of document.querySelectorAll("form[data-start]")) {
  const drop = form.querySelector(".drop");
  const file = form.querySelector("input[type=file]");
  const known = form.querySelector("select[name=model]");
  if (drop && file) {
    for (const name of ["dragenter", "dragover"]) {
      drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
    }
    for (const name of ["dragleave", "drop"]) {
      drop.addEventListener(name, () => drop.classList.remove("over"));
    }
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files.length) file.files = event.dataTransfer.files;
      if (known && file.files.length) known.value = "";
    });
    // The newer choice counts.
    file.addEventListener("change", () => { if (known && file.files.length) known.value = ""; });
    known?.addEventListener("change", () => { if (known.value) file.value = ""; });
  }
  const verbs = [...form.querySelectorAll("input[name=verb]")];
  const options = [...form.querySelectorAll("[data-verbs]")];
  const fit = () => {
    const chosen = verbs.filter((one) => one.checked).map((one) => one.value);
    for (const option of options) {
      option.hidden = !option.dataset.verbs.split(" ").some((verb) => chosen.includes(verb));
    }
    const box = form.querySelector("details");
    if (box) box.hidden = options.every((option) => option.hidden);
  };
  for (const verb of verbs) verb.addEventListener("change", fit);
  fit();
  form.addEventListener("submit", () => {
    const button = form.querySelector("button.main");
    // After the form was read: a disabled button must not stop it.
    setTimeout(() => { button.disabled = true; button.textContent = "Starting..."; });
  });
  // The browser's Back shows the form as it was left.
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}
