// Browsers load no worker from file://. There, a hidden frame runs the script of the search instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inner = frame.contentWindow
      this.inner.answer = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      this.ready = new Promise(resolve => (this.inner.begin = resolve))
      this.inner.document.write(`<body><script>
        const given = window.answer
        window.postMessage = data => given(data)
        window.importScripts = (...urls) => urls.reduce(
          (before, url) => before.then(() => new Promise((done, failed) => {
            const script = document.createElement("script")
            script.src = url
            script.onload = done
            script.onerror = failed
            document.body.appendChild(script)
          })), Promise.resolve())
      </script><script src="${url}"></script><script>begin()</script></body>`)
      this.inner.document.close()
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {}
  }
}
