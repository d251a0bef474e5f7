// A login code in the address works once: it leaves the address bar before anything else happens.
const code = /^#token=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1];
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  const form = document.querySelector("[data-login]");
  form.elements.token.value = code;
  form.requestSubmit();
}
