// Goes to a moment of the journal as soon as the slider is released.
"use strict";
(() => {
  const form = document.getElementById("moment");
  document.getElementById("part").addEventListener("change", () => form.submit());
})();
