const figures = {{ figures | tojson }};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const palettes = {
  light: ["#0072b2", "#d55e00", "#b3261e", "#009e73", "#8250a8", "#a67c00"],
  dark: ["#58b4f0", "#ff9d5c", "#ff8a80", "#4cc38a", "#c9a0f0", "#e6c04c"],
};
// Ramps run from what needs attention to the colour of a card, which is "nothing to see".
const ramps = {
  light: { danger: [[0, "#8c1d18"], [0.2, "#d55e00"], [0.45, "#f2c879"], [1, "#eef1f4"]],
           share: [[0, "#eef1f4"], [0.1, "#b7d3ea"], [0.4, "#4a90c4"], [1, "#123a63"]] },
  dark: { danger: [[0, "#ff8a80"], [0.2, "#e0752f"], [0.45, "#7a5a1f"], [1, "#242a31"]],
          share: [[0, "#242a31"], [0.1, "#1f4a6e"], [0.4, "#3f8fcb"], [1, "#cfe8ff"]] },
};
function draw() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false };
  const palette = dark.matches ? palettes.dark : palettes.light;
  const ramp = dark.matches ? ramps.dark : ramps.light;
  const narrow = window.innerWidth < 640;
  const short = (name) => {
    const most = narrow ? 13 : 34;
    return name.length > most ? "…" + name.slice(1 - most) : name;
  };
  const paint = (trace) => {
    if (trace.type === "heatmap") {
      return { ...trace, colorscale: ramp[trace.meta], colorbar: { ...trace.colorbar, thickness: narrow ? 8 : 14 } };
    }
    if (trace.mode === "markers") {
      return { ...trace, marker: { ...trace.marker, color: colour(trace.meta) } };
    }
    const own = palette[trace.meta % palette.length];
    return { ...trace, line: { ...trace.line, color: own }, fillcolor: own + "22" };
  };
  figures.forEach((figure, index) => {
    const layout = {
      ...figure.layout,
      font: { color: colour("--ink"), family: getComputedStyle(document.body).fontFamily, size: 13 },
      hoverlabel: { bgcolor: colour("--card"), font: { color: colour("--ink") } },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
    };
    for (const name of ["xaxis", "yaxis", "yaxis2"]) {
      if (figure.layout[name]) layout[name] = { ...axis, ...figure.layout[name] };
    }
    if (figure.layout.yaxis.names) {
      layout.yaxis = { ...layout.yaxis, ticktext: figure.layout.yaxis.names.map(short) };
      delete layout.yaxis.names;
    }
    Plotly.react("chart" + index, figure.data.map(paint), layout, { responsive: true, displayModeBar: false });
  });
}
draw();
dark.addEventListener("change", draw);
