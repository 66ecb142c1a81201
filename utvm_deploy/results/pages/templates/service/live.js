// Keeps the parts of a page that have data-live up to date: fetches the part again, and shows it if
// it changed. Where the page names a stream of events (data-events), each event asks for that, too.
// When a part says that it will not change any more (data-ended), the page is loaded once again.
for (const part of document.querySelectorAll("[data-live]")) {
  let shown = null, timer = 0, isBusy = false;
  const every = Number(part.dataset.every ?? 2000);
  const look = async () => {
    clearTimeout(timer);
    if (isBusy) return;
    isBusy = true;
    try {
      if (!document.hidden) {
        const answer = await fetch(part.dataset.live);
        if (answer.status === 401 || answer.redirected) return location.reload();
        if (answer.ok) show(await answer.text());
      }
    } catch {
      // The server is away: the next look may find it.
    } finally {
      isBusy = false;
      timer = setTimeout(look, every);
    }
  };
  const show = (text) => {
    if (text === shown) return;
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const log = part.querySelector(".log");
    const isAtEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    const at = log?.scrollTop;
    if (shown !== null) part.innerHTML = text;
    shown = text;
    const now = part.querySelector(".log");
    if (now) now.scrollTop = isAtEnd ? now.scrollHeight : at;
    if (focused) document.getElementById(focused)?.focus();
    if (part.querySelector("[data-ended]")) location.reload();
  };
  document.addEventListener("visibilitychange", look);
  if (part.dataset.events && "EventSource" in window) {
    const source = new EventSource(part.dataset.events);
    let soon = 0;
    const told = () => { soon ||= setTimeout(() => { soon = 0; look(); }, 250); };
    source.onmessage = told;
    for (const kind of ["job", "log", "tuning", "counts", "boards"]) source.addEventListener(kind, told);
    addEventListener("pagehide", () => source.close());
  }
  look();
}
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
