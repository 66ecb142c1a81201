// Browsers start no Worker for pages that are files. There, the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      const page = this.inside.document;
      page.open();
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      page.write("<!DOCTYPE html><title>Search</title>");
      const script = page.createElement("script");
      this.ready = new Promise((done) => {
        script.onload = done;
      });
      script.src = new URL(address, location.href);
      page.head.append(script);
      page.close();
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
