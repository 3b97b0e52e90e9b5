// Draws each plot of the page when it comes into view, from the data in #plots (see html/plots.rs).
(() => {
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const elements = [...document.querySelectorAll("[data-plot]")];
  const charts = new Map();

  function draw(element) {
    if (!charts.has(element)) {
      const chart = new Chart(element);
      charts.set(element, chart);
      element.tabIndex = 0;
      element.addEventListener("keydown", (event) => chart.key(event));
    }
    const plot = plots[element.dataset.plot];
    const lines = plot.lines.map((line) => (line.band ? { ...line, bands: [line.band], marked: true, gaps: true } : line));
    charts.get(element).draw({ ...plot, lines });
  }

  const inView = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting && !charts.has(target)) draw(target);
  }, { rootMargin: "600px" });
  elements.forEach((element) => inView.observe(element));
  new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(document.body);

  // Legends get their colours when they are drawn. Print is always light.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => [...charts.keys()].forEach(draw));
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    elements.forEach(draw);
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.theme;
    elements.forEach(draw);
  });
})();
