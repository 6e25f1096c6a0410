// Arithmetic of formulas: on numbers, and on ranges of numbers over a rectangle of the matrix.

const f = Math.fround;
const floorDiv = (a, b) => Math.floor(a / b);
const floorMod = (a, b) => a - b * Math.floor(a / b);
const clamp = (x, low, high) => (x < low ? low : x > high ? high : x);
const whole = (x) => Math.trunc(clamp(x, -2147483520, 2147483520)) || 0; // as kernels/reals.py
const middle = (a, b) => Math.floor((a + b) / 2); // not >> 1: that is of 32 bits
const exp2 = (x) => Math.pow(2, x);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// A condition over a rectangle: it holds nowhere, perhaps somewhere, everywhere.
const NO = 0;
const SOME = 1;
const YES = 2;

const UNKNOWN = [-(2 ** 60), 2 ** 60];

const point = (x) => [x, x];
const notNegative = ([low, high]) => (low >= 0 ? YES : high < 0 ? NO : SOME);
const zero = ([low, high]) => (low === 0 && high === 0 ? YES : low > 0 || high < 0 ? NO : SOME);
const flags = ([low, high]) => (low > 0 ? YES : high <= 0 ? NO : SOME);

function every(...parts) {
  let result = YES;
  for (const part of parts) {
    const found = part();
    if (found === NO) return NO;
    if (found < result) result = found;
  }
  return result;
}

function any(...parts) {
  let result = NO;
  for (const part of parts) {
    const found = part();
    if (found === YES) return YES;
    if (found > result) result = found;
  }
  return result;
}

function plus(...parts) {
  let low = 0;
  let high = 0;
  for (const [a, b] of parts) {
    low += a;
    high += b;
  }
  return [low, high];
}

function times(first, ...others) {
  let [low, high] = first;
  for (const [a, b] of others) {
    const corners = [low * a, low * b, high * a, high * b];
    low = Math.min(...corners);
    high = Math.max(...corners);
  }
  return [low, high];
}

// Divisors are at least 1.
function quotient([low, high], [c, d]) {
  const corners = [floorDiv(low, c), floorDiv(low, d), floorDiv(high, c), floorDiv(high, d)];
  return [Math.min(...corners), Math.max(...corners)];
}

function remainder([low, high], [c, d]) {
  if (c === d && floorDiv(low, c) === floorDiv(high, c)) return [floorMod(low, c), floorMod(high, c)];
  return [0, d - 1];
}

function least(first, ...others) {
  return others.reduce(([a, b], [c, d]) => [Math.min(a, c), Math.min(b, d)], first);
}

function most(first, ...others) {
  return others.reduce(([a, b], [c, d]) => [Math.max(a, c), Math.max(b, d)], first);
}

function choice(condition, then, otherwise) {
  if (condition === YES) return then;
  if (condition === NO) return otherwise;
  return [Math.min(then[0], otherwise[0]), Math.max(then[1], otherwise[1])];
}
