"use strict";
(async () => {
  let charts = [];  // until they are unpacked
  const phone = matchMedia("(max-width: 40rem)");
  const coarse = matchMedia("(pointer: coarse)").matches;

  // Colours of the page, as the style sheet has them now.
  const look = () => {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: value("--grid"), linecolor: value("--line"), zerolinecolor: value("--line"), automargin: true };
    return { ink: value("--ink"), card: value("--card"), line: value("--line"), axis };
  };
  const below = { yref: "container", y: 0, yanchor: "bottom", font: { size: 10 } };  // where a legend leaves no room
  let before = null;  // what to go back to after printing
  const millimetre = 96 / 25.4;
  const printed = { autosize: false, width: 86 * millimetre, height: 60 * millimetre };  // as the style sheet has it
  const layout = (chart) => {
    const { ink, card, line, axis } = look();
    const own = chart.layout;
    return {
      ...own,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: phone.matches ? 11 : 12, color: ink },
      hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink } },
      margin: { l: 8, r: 8, t: 8, b: 8 },
      showlegend: own.showlegend ?? (chart.traces.length === 2 && !chart.chapter),
      legend: { x: 0.02, y: 0.98, bgcolor: "rgba(0,0,0,0)", ...own.legend, ...(phone.matches && own.legend ? below : {}) },
      dragmode: coarse ? false : "zoom",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: line, activecolor: ink },
      xaxis: { ...axis, ...own.xaxis }, yaxis: { ...axis, ...own.yaxis },
      ...(before === null ? {} : printed),
    };
  };
  const colours = (chart) => {
    const full = layout(chart);
    return {
      "modebar.color": full.modebar.color, "modebar.activecolor": full.modebar.activecolor,
      "font.color": full.font.color, "hoverlabel.bgcolor": full.hoverlabel.bgcolor,
      "hoverlabel.bordercolor": full.hoverlabel.bordercolor, "hoverlabel.font.color": full.hoverlabel.font.color,
      "xaxis.gridcolor": full.xaxis.gridcolor, "yaxis.gridcolor": full.yaxis.gridcolor,
      "xaxis.linecolor": full.xaxis.linecolor, "yaxis.linecolor": full.yaxis.linecolor,
      "xaxis.zerolinecolor": full.xaxis.zerolinecolor, "yaxis.zerolinecolor": full.yaxis.zerolinecolor,
    };
  };
  const repaint = (size = {}) => charts.filter((chart) => chart.drawn)
    .forEach((chart) => Plotly.relayout(chart.id, { ...colours(chart), ...size }));

  // Light, dark, or as the system says.
  const root = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    repaint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint());

  // The contents stay beside the page; where there is no room, they open from its top. A link opens what it leads to.
  const contents = document.getElementById("contents");
  const wide = matchMedia("(min-width: 75rem)");
  const place = () => { if (contents) contents.open = wide.matches; };
  place();
  wide.addEventListener("change", place);
  contents?.addEventListener("click", (event) => { if (event.target.closest("a")) place(); });
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const study = target.closest(".study") || target.querySelector(":scope > .study");
    if (study) study.open = true;
    target.closest("details")?.setAttribute("open", "");
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener("click", () => {
    if (link.hash === location.hash) reveal();
  }));
  reveal();

  // Tables that are wider than the page say so.
  const measure = () => document.querySelectorAll(".scroll").forEach((part) => {
    const hint = part.nextElementSibling;
    if (hint?.matches(".more")) hint.hidden = part.scrollWidth <= part.clientWidth + 1;
  });
  measure();
  addEventListener("resize", measure);
  document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", measure));

  // Normalizations are shown and hidden in all charts of their chapter.
  const hidden = {};
  const shown = (chart) => {
    const seen = chart.traces.map((trace) => !(hidden[chart.chapter] || new Set()).has(trace.meta));
    const lines = chart.traces.filter((trace, k) => seen[k] && !trace.isBand).length;
    return seen.map((visible, k) => visible && !(chart.traces[k].isBand && lines > 4));  // many bands cover each other
  };
  document.querySelectorAll(".chip").forEach((chip) => chip.addEventListener("click", () => {
    const chapter = chip.closest("article").dataset.chapter;
    const off = chip.getAttribute("aria-pressed") === "true";
    chip.setAttribute("aria-pressed", String(!off));
    const names = (hidden[chapter] ||= new Set());
    off ? names.add(chip.dataset.norm) : names.delete(chip.dataset.norm);
    charts.filter((chart) => chart.chapter === chapter && chart.drawn)
      .forEach((chart) => Plotly.restyle(chart.id, { visible: shown(chart) }));
  }));

  // Charts, data and the library travel compressed; a browser that cannot unpack them still has the words, and the data
  // as a compressed file.
  const say = (text) => document.querySelectorAll(".chart .waiting").forEach((place) => { place.textContent = text; });
  if (typeof DecompressionStream === "undefined") {
    say("This browser is too old to draw charts. The caption says what this one shows, and links to its data.");
    return;
  }
  const unpack = (text) => {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const unpackPart = (id) => unpack(document.getElementById(id).textContent.trim());
  document.querySelectorAll("a[download]").forEach((link) => {
    const packed = link.href.split(",")[1];
    link.download = link.download.replace(/\.gz$/, "");
    link.addEventListener("click", async (event) => {
      if (link.href.startsWith("blob:")) return;
      event.preventDefault();
      link.href = URL.createObjectURL(new Blob([await unpack(packed)], { type: "text/csv" }));
      link.click();
    });
  });
  // A standard deviation comes as one number for each point of its line, and is drawn as an area between two ends.
  const withArea = ({ band, ends, ...line }) => {
    if (!band) return [line];
    const [low, high] = [ends[0] ?? -Infinity, ends[1] ?? Infinity];
    const edge = (sign) => line.y.map((y, k) => Math.min(Math.max(y + sign * band[k], low), high));
    const { hovertemplate, ...area } = line;
    return [{ ...area, isBand: true, x: [...line.x, ...line.x.slice().reverse()], y: [...edge(1), ...edge(-1).reverse()],
      line: { width: 0 }, fill: "toself", fillcolor: `${line.line.color}1f`, hoverinfo: "skip", showlegend: false }, line];
  };
  charts = JSON.parse(await unpackPart("charts"));
  charts.forEach((chart) => { chart.traces = chart.traces.flatMap(withArea); });
  const script = document.createElement("script");
  script.textContent = await unpackPart("plotly");
  document.head.append(script);

  const draw = async (chart) => {
    if (chart.drawn) return;
    chart.drawn = true;
    const place = document.getElementById(chart.id);
    place.replaceChildren();
    place.classList.toggle("keyed", Boolean(chart.layout.legend));
    const traces = chart.traces.map((trace, k) => ({ ...trace, visible: chart.chapter ? shown(chart)[k] : true }));
    const options = { responsive: true, displaylogo: false, displayModeBar: coarse ? false : "hover",
      showSendToCloud: false, plotlyServerURL: "", modeBarButtonsToRemove: ["lasso2d", "select2d", "sendChartToCloud"] };
    await Plotly.newPlot(place, traces, layout(chart), options);
    place.dataset.drawn = "true";
  };
  // Charts are drawn as they come near; all of them before printing.
  const near = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    near.unobserve(entry.target);
    draw(charts.find((chart) => chart.id === entry.target.id));
  }), { rootMargin: "600px" });
  charts.forEach((chart) => near.observe(document.getElementById(chart.id)));
  addEventListener("beforeprint", () => {
    if (before !== null) return;
    before = { theme: root.dataset.theme || "", closed: [...document.querySelectorAll("details:not([open])")] };
    root.dataset.theme = "light";
    before.closed.forEach((part) => { part.open = true; });
    repaint(printed);
    charts.forEach(draw);
  });
  addEventListener("afterprint", () => {
    if (before === null) return;
    if (before.theme) root.dataset.theme = before.theme; else delete root.dataset.theme;
    const { closed } = before;
    before = null;
    repaint({ autosize: true });
    closed.forEach((part) => { part.open = false; });
  });
})();
