// Colours: those of the style sheet, light or dark as the system or the reader says.

const THEMES = ["auto", "light", "dark"];
const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");
let themeChoice = "auto";
let colours = {};

function applyTheme() {
  const dark = themeChoice === "dark" || (themeChoice === "auto" && systemIsDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const style = getComputedStyle(document.documentElement);
  for (const name of ["card", "ink", "soft", "faint", "line", "grid", "empty", "partial", "open", "full", "mark", "accent"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  colours.labels = Uint32Array.from([colours.empty, colours.partial, colours.full, colours.open], pixel);
  colours.heat = heatOf([1, 2, 3, 4, 5].map((stop) => style.getPropertyValue(`--heat-${stop}`).trim()));
  colours.dropped = pixel(style.getPropertyValue("--dropped").trim());
}

// #rrggbb as a pixel of an image.
function pixel(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function nextTheme() {
  themeChoice = THEMES[(THEMES.indexOf(themeChoice) + 1) % THEMES.length];
  applyTheme();
  return themeChoice;
}
