// SPDX-License-Identifier: Apache-2.0
// Browsers start no workers for pages that are opened from a folder, so the worker of the search
// runs in a hidden frame there. The theme would load another script for this from the network.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.document.open();
      this.inside.document.close();
      this.inside.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.loaded = new Promise((resolve) => {
        const script = this.inside.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        this.inside.document.documentElement.append(script);
      });
    }
    postMessage(data) {
      this.loaded.then(() =>
        this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
