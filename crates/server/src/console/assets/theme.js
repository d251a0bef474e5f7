// Runs before the page is painted, so that it never flashes in the other theme.
(() => {
  try {
    const theme = localStorage.getItem("countersign-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // Without storage the system's theme holds.
  }
})();
