// Attention on a CPU: the loop that every expression shares.
//
// A thread takes a tile of 48 queries of one head and keeps it in its cache. The queries are the
// lanes of vectors: scores S[key][query] are sums of products of one number of a key, broadcast,
// with a vector of queries, so that keys and values are read as they lie and softmax needs no sum
// across lanes. Of dK and dV the lanes are keys. What an expression says comes as functions
// ("hooks") that take a block of scores at a time. No result depends on the number of threads.

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t I;

static const I TILE = 48;  // queries of a tile, or keys where these are the lanes
static const I BLOCK = 64;  // keys that are computed at once
static const I STEP = 16;  // columns: each matrix that is computed has a multiple of it
static const I MOST_MEMORY = 64 << 20;  // bytes of a thread for sums of dQ
static const float L2E = 1.4426950408889634f;
static const float FAR = 8.f;  // weights relative to a reference are at most exp(FAR)

// Lanes of a vector of the machine: wider ones compile, and lie in memory. Then the most vectors of
// the innermost product, and its rows beside N of them: as many as there are registers for.
#ifdef __AVX512F__
static const int LANES = 16, VECTORS = 4;
constexpr int rows_beside(int n) { return n == 4 ? 6 : 8; }
#elif defined(__AVX__)
static const int LANES = 8, VECTORS = 2;
constexpr int rows_beside(int) { return 6; }
#elif defined(__aarch64__)
static const int LANES = 4, VECTORS = 4;
constexpr int rows_beside(int) { return 6; }
#else
static const int LANES = 4, VECTORS = 2;
constexpr int rows_beside(int) { return 4; }
#endif

typedef float V __attribute__((vector_size(4 * LANES)));
typedef float U __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t VI __attribute__((vector_size(4 * LANES)));

// [batch, head, row, column] with steps in elements.
struct Tensor {
  char* at;
  I batch, head, row, column;
};

// Scores of `others` x `lanes` positions, from (other0, lane0) on, changed in place.
typedef void (*Hook)(const I* S, I batch, I head, I lane0, I lanes, I other0, I others, float* s,
                     const float* raw);
// The keys of queries q0..q1: `touched` intervals [low, high], then `unfull` ones.
typedef void (*Bounds)(const I* S, I batch, I head, I q0, I q1, I kv_len, I* found);

struct Call {
  I dtype;  // 0 float32, 1 bfloat16, 2 float16
  I batch, heads, kv_heads, q_len, kv_len, dim, value_dim, threads;
  double scale;
  Tensor q, k, v, out;
  float* lse;
  // The expression.
  const I* S;
  Bounds bounds;
  I touched, unfull;
  I mask_batches, mask_heads;  // how many the mask tells apart, or 1
  Hook mask_q, mask_k, bias_q, bias_k, slope_q, slope_k;
  // Runs of blocks of keys in place of bounds, in compressed rows: a row for each tile of queries of
  // each batch entry and head that the mask tells apart. `runs` is the most that a row has.
  const int32_t *run_start, *run_first, *run_end, *run_label;
  I rows, runs, run_keys;
  // Where tiles of queries of the forward pass begin, and q_len; null where one follows the other.
  const int32_t* tile_first;
  I tiles;
  // The backward pass.
  Tensor grad, dq, dk, dv;
  const float* grad_lse;
  float* stats;  // [3, batch, heads, q_len]: largest score, log of the sum, delta
  I part;        // whether lse is of further keys, too
};

static inline I least(I a, I b) { return a < b ? a : b; }
static inline I most(I a, I b) { return a > b ? a : b; }

static inline float of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
static inline uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

static inline float of_half(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, size = (uint32_t)(h & 0x7fff) << 13;
  float f = of_bits(size) * 0x1p112f;
  uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
  return of_bits(bits_of(f) | special | sign);
}
static inline uint16_t to_half(float f) {
  uint32_t w = bits_of(f), sign = w & 0x80000000u, two_w = w + w;
  uint32_t bias = two_w & 0xff000000u;
  if (bias < 0x71000000u) bias = 0x71000000u;
  float base = fabsf(f) * 0x1p112f * 0x1p-110f;
  base = of_bits((bias >> 1) + 0x07800000u) + base;
  uint32_t bits = bits_of(base);
  uint32_t nonsign = ((bits >> 13) & 0x7c00u) + (bits & 0xfffu);
  return (uint16_t)((sign >> 16) | (two_w > 0xff000000u ? 0x7e00u : nonsign));
}
static inline uint16_t to_bfloat(float f) {
  uint32_t w = bits_of(f);
  if (f != f) return 0x7fc0;
  return (uint16_t)((w + 0x7fff + ((w >> 16) & 1)) >> 16);
}

// `count` rows of one head as float32 with `*step` numbers from one to the next: where they lie,
// or a copy.
static const float* rows_of(const Call& c, const Tensor& t, I batch, I head, I first, I count,
                            I dim, float* copy, I* step) {
  I at = batch * t.batch + head * t.head + first * t.row;
  if (c.dtype == 0) {
    const float* from = (const float*)t.at + at;
    *step = t.row;
    if (t.column == 1) return from;
    for (I i = 0; i < count; i++)
      for (I d = 0; d < dim; d++) copy[i * dim + d] = from[i * t.row + d * t.column];
  } else {
    for (I i = 0; i < count; i++) {
      const uint16_t* from = (const uint16_t*)t.at + at + i * t.row;
      float* to = copy + i * dim;
      if (c.dtype == 1 && t.column == 1)
        for (I d = 0; d < dim; d++) to[d] = of_bits((uint32_t)from[d] << 16);
      else if (t.column == 1)
        for (I d = 0; d < dim; d++) to[d] = of_half(from[d]);
      else
        for (I d = 0; d < dim; d++) {
          uint16_t x = from[d * t.column];
          to[d] = c.dtype == 1 ? of_bits((uint32_t)x << 16) : of_half(x);
        }
    }
  }
  *step = dim;
  return copy;
}

static inline void put(const Call& c, const Tensor& t, I at, float x) {
  if (c.dtype == 0)
    ((float*)t.at)[at] = x;
  else
    ((uint16_t*)t.at)[at] = c.dtype == 1 ? to_bfloat(x) : to_half(x);
}

typedef float Four __attribute__((vector_size(16), aligned(4)));

// to[c * to_step + r] = from[r * step + c] * factor
static void flip(const float* from, I step, I rows, I columns, float factor, float* to, I to_step) {
  I r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* at = from + r * step;
    I c = 0;
    for (; c + 4 <= columns; c += 4) {
      Four x0 = *(Four*)(at + c), x1 = *(Four*)(at + step + c);
      Four x2 = *(Four*)(at + 2 * step + c), x3 = *(Four*)(at + 3 * step + c);
      Four a0 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5);
      Four a1 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
      Four a2 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
      Four a3 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
      float* out = to + c * to_step + r;
      *(Four*)out = __builtin_shufflevector(a0, a2, 0, 1, 4, 5) * factor;
      *(Four*)(out + to_step) = __builtin_shufflevector(a0, a2, 2, 3, 6, 7) * factor;
      *(Four*)(out + 2 * to_step) = __builtin_shufflevector(a1, a3, 0, 1, 4, 5) * factor;
      *(Four*)(out + 3 * to_step) = __builtin_shufflevector(a1, a3, 2, 3, 6, 7) * factor;
    }
    for (; c < columns; c++)
      for (I i = 0; i < 4; i++) to[c * to_step + r + i] = at[i * step + c] * factor;
  }
  for (; r < rows; r++)
    for (I c = 0; c < columns; c++) to[c * to_step + r] = from[r * step + c] * factor;
}

// Write the columns of from[dim][width] as rows of a tensor, times a factor.
static void put_rows(const Call& c, const Tensor& t, I batch, I head, I first, I count, I dim,
                     I width, const float* from, float factor, float* copy) {
  I at = batch * t.batch + head * t.head + first * t.row;
  if (c.dtype == 0 && t.column == 1) {
    flip(from, width, dim, count, factor, (float*)t.at + at, t.row);
    return;
  }
  flip(from, width, dim, count, factor, copy, dim);
  for (I i = 0; i < count; i++)
    for (I d = 0; d < dim; d++) put(c, t, at + i * t.row + d * t.column, copy[i * dim + d]);
}

// The rows as columns to[dim][width], times a factor; columns without a row are 0.
static void transposed(const float* rows, I step, I count, I dim, I width, float factor,
                       float* to) {
  flip(rows, step, count, dim, factor, to, width);
  for (I d = 0; d < dim && count < width; d++)
    memset(to + d * width + count, 0, (width - count) * sizeof(float));
}

// c[r][:] (+)= sum over t of a[r * ra + t * ta] * b[t][:], for N vectors of rows of `width` columns.
// Terms are added in the order of t, each rounded once, whatever N is.
template <int N, bool ADD>
__attribute__((noinline)) static void product_of(const float* a, I ra, I ta, I R, I T,
                                                 const float* b, float* c, I width) {
  const int ROWS = rows_beside(N);
  for (I r = 0; r < R; r += ROWS) {
    const float* p[ROWS];
    V sum[ROWS][N];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++) {
      p[i] = a + least(r + i, R - 1) * ra;
#pragma GCC unroll 8
      for (int j = 0; j < N; j++)
        sum[i][j] = ADD ? *(const V*)(c + least(r + i, R - 1) * width + j * LANES) : V{};
    }
    const float* at = b;
    for (I t = 0; t < T; t++, at += width) {
      V x[N];
#pragma GCC unroll 8
      for (int j = 0; j < N; j++) x[j] = *(const V*)(at + j * LANES);
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; i++) {
        float y = p[i][t * ta];
#pragma GCC unroll 8
        for (int j = 0; j < N; j++) sum[i][j] += y * x[j];
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
      if (r + i < R)
#pragma GCC unroll 8
        for (int j = 0; j < N; j++) *(V*)(c + (r + i) * width + j * LANES) = sum[i][j];
  }
}

// The same for all columns, a multiple of STEP.
template <bool ADD>
static inline void product(const float* a, I ra, I ta, I R, I T, const float* b, float* c,
                           I width) {
  for (I left = width / LANES, n; left; left -= n, b += n * LANES, c += n * LANES) {
    n = LANES < STEP ? VECTORS : left % 3 == 0 || left == 5 ? 3 : least(left, VECTORS);
    if (n == VECTORS) product_of<VECTORS, ADD>(a, ra, ta, R, T, b, c, width);
#ifdef __AVX512F__
    if (n == 1) product_of<1, ADD>(a, ra, ta, R, T, b, c, width);
    if (n == 2) product_of<2, ADD>(a, ra, ta, R, T, b, c, width);
    if (n == 3) product_of<3, ADD>(a, ra, ta, R, T, b, c, width);
#endif
  }
}

// Whether rows hold NaN or an infinity.
static bool wild(const float* rows, I step, I count, I dim) {
  V sum = V{};
  float rest = 0.f;
  for (I i = 0; i < count; i++) {
    const float* at = rows + i * step;
    I d = 0;
    for (; d + LANES <= dim; d += LANES) sum += *(const U*)(at + d) * 0.f;
    for (; d < dim; d++) rest += at[d] * 0.f;
  }
  for (int i = 0; i < LANES; i++) rest += sum[i];
  return rest != 0.f;
}

// c[r][:] += sum over t of rows[t][r] * b[t][:]. Where a mask cuts the block (`masked`), a row has
// no part in a column where its weight is 0, whatever stands in it; `tame` holds the other rows.
static void add_kept(bool masked, const float* rows, I step, I R, I T, const float* b, float* c,
                     I width, float* tame) {
  if (!masked || !wild(rows, step, T, R)) return product<true>(rows, 1, step, R, T, b, c, width);
  for (I t = 0; t < T; t++)
    if (wild(rows + t * step, step, 1, R))
      memset(tame + t * R, 0, R * sizeof(float));
    else
      memcpy(tame + t * R, rows + t * step, R * sizeof(float));
  product<true>(tame, 1, R, R, T, b, c, width);
  for (I t = 0; t < T; t++)
    for (I r = 0; r < R && wild(rows + t * step, step, 1, R); r++)
      for (I x = 0; x < width; x++) {
        float p = b[t * width + x];
        if (p != 0.f) c[r * width + x] += p * rows[t * step + r];
      }
}

// 2 to the power of x, which is at most 127: 0 under 2**-126, NaN of NaN.
static inline V exp2_of(V x) {
  V y = x < -126.f ? V{} - 127.f : x;  // whose scale is 0
  V r = y + 12582912.f;  // y rounded to an integer stands in the last bits
  V f = y - (r - 12582912.f);
  V p = f * 1.33908634e-3f + 9.67603192e-3f;
  p = p * f + 5.55035711e-2f;
  p = p * f + 2.40221075e-1f;
  p = p * f + 6.93147188e-1f;
  p = p * f + 1.f;
  V scale = (V)(((VI)r << 23) + (127 << 23));
  return p * scale;
}

// Intervals of keys, and the loop over blocks of them. What a loop keeps true is stated above it, and
// is proved of its text for any number of intervals (`maskalg/verifier/walk/blocks.py`): `t` is any
// key, `a` any place of a list, `table` a list as a function is given it, `lies(at, a)` whether its
// interval [first, end) at that place holds t, and `within(at, n, t)` whether one of the first n does.

// Closed intervals of any integers, as intervals [first, end) of keys.
static void clip(I* at, I count, I kv_len) {
  // invariant: (0 <= i) & (i <= count)
  // invariant: implies(a >= i, (at[2 * a] == table[2 * a]) & (at[2 * a + 1] == table[2 * a + 1]))
  // invariant: implies((0 <= a) & (a < i), lies(at, a) == (is_key & lies_in_closed(table, a)))
  // until: count - i
  for (I i = 0; i < count; i++) {
    at[2 * i] = most(at[2 * i], 0);
    at[2 * i + 1] = least(at[2 * i + 1] + 1, kv_len);
  }
}

// Runs of blocks of so many keys, with the labels of tiles, as intervals of keys: those of the
// blocks that are not empty, and those of the blocks to be masked. One without a block has no key.
static void listed(const int32_t* first, const int32_t* end, const int32_t* label, I count, I keys,
                   I kv_len, I* at, I* masked) {
  // invariant: (0 <= i) & (i <= count)
  // invariant: implies((0 <= a) & (a < i), lies(at, a) == (lies_in_run(a) & (label[a] != 0)))
  // invariant: implies((0 <= a) & (a < i), lies(masked, a) == (lies_in_run(a) & (label[a] == 1)))
  // until: count - i
  for (I i = 0; i < count; i++) {
    I begin = first[i] * keys, stop = least(end[i] * keys, kv_len);
    at[2 * i] = begin, at[2 * i + 1] = label[i] != 0 ? stop : begin;
    masked[2 * i] = begin, masked[2 * i + 1] = label[i] == 1 ? stop : begin;
  }
}

// The same intervals in the order of their beginnings.
static void in_order(I* at, I count) {
  // invariant: (1 <= i) & ((i <= count) | (i == 1))
  // invariant: implies((1 <= a) & (a < i), at[2 * a - 2] <= at[2 * a])
  // invariant: within(at, count, t) == within(table, count, t)
  // until: count - i
  for (I i = 1; i < count; i++)
    // invariant: (0 <= j) & (j <= i)
    // invariant: implies((1 <= a) & (a <= i) & (a != j), at[2 * a - 2] <= at[2 * a])
    // invariant: implies((1 <= j) & (j < i), at[2 * j - 2] <= at[2 * j + 2])
    // invariant: within(at, count, t) == within(table, count, t)
    // until: j
    for (I j = i; j > 0 && at[2 * j] < at[2 * j - 2]; j--) {
      I first = at[2 * j], end = at[2 * j + 1];
      at[2 * j] = at[2 * j - 2], at[2 * j + 1] = at[2 * j - 1];
      at[2 * j - 2] = first, at[2 * j - 1] = end;
    }
}

// Of intervals in order, how many there are if those without a key are left out, and those that
// overlap or touch are one.
static I joined(I* at, I count) {
  I kept = 0;
  // invariant: (0 <= kept) & (kept <= i) & (i <= count)
  // invariant: implies(a >= i, (at[2 * a] == table[2 * a]) & (at[2 * a + 1] == table[2 * a + 1]))
  // invariant: implies((0 <= a) & (a < kept), at[2 * a] < at[2 * a + 1])
  // invariant: implies((1 <= a) & (a < kept), at[2 * a - 1] < at[2 * a])
  // invariant: implies((0 < kept) & (i < count), at[2 * kept - 2] <= at[2 * i])
  // invariant: within(at, kept, t) == within(table, i, t)
  // until: count - i
  for (I i = 0; i < count; i++) {
    I first = at[2 * i], end = at[2 * i + 1];
    if (first >= end) continue;
    if (kept > 0 && first <= at[2 * kept - 1])
      at[2 * kept - 1] = most(at[2 * kept - 1], end);
    else
      at[2 * kept] = first, at[2 * kept + 1] = end, kept++;
  }
  return kept;
}

static I united(I* at, I count) {
  in_order(at, count);
  I kept = joined(at, count);
  return kept;
}

// Whether one of the intervals holds one of the keys first..end - 1.
static bool meets(const I* at, I count, I first, I end) {
  bool found = false;
  // invariant: (0 <= i) & (i <= count)
  // invariant: found | ~((first <= t) & (t < end) & within(at, i, t))
  // until: count - i
  for (I i = 0; i < count; i++) found |= at[2 * i] < end && first < at[2 * i + 1];
  return found;
}

// Whether one of the intervals holds all of these keys.
static bool holds(const I* at, I count, I first, I end) {
  bool found = false;
  // invariant: (0 <= i) & (i <= count)
  // invariant: implies(found & (first <= t) & (t < end), within(at, i, t))
  // until: count - i
  for (I i = 0; i < count; i++) found |= at[2 * i] <= first && end <= at[2 * i + 1];
  return found;
}

// Disjoint intervals of keys [first, end) in order, and those that have to be masked.
struct Spans {
  I touched, unfull;
  const I *at, *masked;
};

// Whether queries may drop one of the keys first..end - 1: if not, all keep all.
static bool may_drop(const Spans& s, I first, I end) {
  return !holds(s.at, s.touched, first, end) || meets(s.masked, s.unfull, first, end);
}

// Visit each key of a row of queries once, in blocks: the first key of a block, how many, and
// whether it has to be masked.
template <class Visit>
static inline void over_blocks(const Spans& s, Visit visit) {
  // invariant: (0 <= i) & (i <= s.touched)
  // invariant: visits(state) == within(s.at, i, t)
  // invariant: implies(within(s.at, i, t) & (i < s.touched), t < s.at[2 * i])
  // invariant: implies(unmasked(state), ~within(s.masked, s.unfull, t))
  // until: s.touched - i
  for (I i = 0; i < s.touched; i++)
    // invariant: (s.at[2 * i] <= k0) & (k0 < s.at[2 * i + 1] + BLOCK)
    // invariant: visits(state) == (within(s.at, i, t) | (lies(s.at, i) & (t < k0)))
    // invariant: implies(unmasked(state), ~within(s.masked, s.unfull, t))
    // until: s.at[2 * i + 1] + BLOCK - k0
    for (I k0 = s.at[2 * i]; k0 < s.at[2 * i + 1]; k0 += BLOCK) {
      I nk = least(BLOCK, s.at[2 * i + 1] - k0);
      visit(k0, nk, meets(s.masked, s.unfull, k0, k0 + nk));
    }
}

// Intervals that there is room for before those that have to be masked.
static I most_touched(const Call& c) { return c.bounds ? c.touched : c.runs; }

static I most_ends(const Call& c) { return 2 * (most_touched(c) + (c.bounds ? c.unfull : c.runs)); }

static Spans spans_of(const Call& c, I batch, I head, I q0, I q1, I* at) {
  I *masked = at + 2 * most_touched(c), touched = c.touched, unfull = c.unfull;
  if (c.bounds) {
    c.bounds(c.S, batch, head, q0, q1, c.kv_len, at);
    clip(at, touched, c.kv_len), clip(masked, unfull, c.kv_len);
  } else {
    I row = (least(batch, c.mask_batches - 1) * c.mask_heads + least(head, c.mask_heads - 1));
    row = row * c.rows + q0 / TILE;
    I start = c.run_start[row];
    touched = unfull = c.run_start[row + 1] - start;
    listed(c.run_first + start, c.run_end + start, c.run_label + start, touched, c.run_keys,
           c.kv_len, at, masked);
  }
  touched = united(at, touched), unfull = united(masked, unfull);
  return {touched, unfull, at, masked};
}

// What a thread writes to.
struct Work {
  float *query, *grad, *sums, *more, *scores, *raw, *change, *copy, *other, *tame, *keys, *row;
  I* ends;
};

static I rounded(I n) { return (n + 63) / 64 * 64; }

static pthread_key_t kept;  // the memory of a thread, for its next call: its size, then the rest

// Whether there is memory for what a thread writes to; without it `w` is not to be used.
static bool work_of(const Call& c, Work* w) {
  I wide = rounded(most(c.dim, c.value_dim) + 64) * BLOCK;
  I sizes[] = {wide, wide, wide, wide, BLOCK * BLOCK, BLOCK * BLOCK, BLOCK * BLOCK, wide, wide, wide, wide, 8 * BLOCK};
  float** parts[] = {&w->query, &w->grad,   &w->sums, &w->more,  &w->scores,
                     &w->raw,   &w->change, &w->copy, &w->other, &w->tame, &w->keys, &w->row};
  I total = rounded((most_ends(c) + 2) * sizeof(I));
  for (I size : sizes) total += size * sizeof(float);
  I* memory = (I*)pthread_getspecific(kept);
  if (!memory || *memory < total) {
    free(memory);
    memory = (I*)aligned_alloc(64, rounded(total) + 64);
    if (memory) *memory = total;
    pthread_setspecific(kept, memory);
    if (!memory) return false;
  }
  float* at = (float*)memory + STEP;
  for (int i = 0; i < 12; i++) *parts[i] = at, at += sizes[i];
  w->ends = (I*)at;
  return true;
}

// Items of one call that threads take one after the other. The caller takes items too.
//
// There are two sets of threads to share them with. Torch's own (OpenMP's team) wait for work at
// full speed for some milliseconds after each of torch's operations, and would keep the cores from
// any others; but a team's call returns no sooner than all of its threads have come. Where other
// processes keep the cores that takes long, so a team of which a thread came too late to take an
// item is left alone for some calls. The threads here (`work_for_ever`) serve these calls, and
// machines without OpenMP: the caller waits for none but the items that they have begun.
struct Job {
  void (*run)(const Call& c, Work& w, I item, void* more);
  const Call* call;
  void* more;
  I count, next, helpers, most_helpers, able, late;
  unsigned rounding;
  Job* following;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER, left = PTHREAD_COND_INITIALIZER;
static Job* jobs = 0;
static I workers = 0;
static pthread_once_t once = PTHREAD_ONCE_INIT;

typedef void (*Team)(void (*run)(void*), void* job, unsigned threads, unsigned flags);
static Team team = 0;
static I alone = 0, spell = 1;  // calls to come without the team, and how many after the next delay
static const I LONGEST = 64;

// A forked process has none of its parent's threads.
static void forget_workers() {
  pthread_mutex_init(&lock, 0);
  pthread_cond_init(&wanted, 0), pthread_cond_init(&left, 0);
  jobs = 0, workers = 0, team = 0;
}

static void prepare() {
  if (pthread_key_create(&kept, free)) abort();
  team = (Team)dlsym(RTLD_DEFAULT, "GOMP_parallel");
  pthread_atfork(0, 0, forget_workers);
}

// Whether this thread has the memory to take items; others take them where it has not.
static bool take_items(Job* job) {
  Work w;
  if (!work_of(*job->call, &w)) return false;
  for (;;) {
    I item = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED);
    if (item >= job->count) return true;
    job->run(*job->call, w, item, job->more);
  }
}

static unsigned rounding_mode() {
#ifdef __SSE__
  return __builtin_ia32_stmxcsr() & ~63u;
#else
  return 0;
#endif
}

// Small numbers count as another thread has it.
static void set_rounding(unsigned mode) {
#ifdef __SSE__
  __builtin_ia32_ldmxcsr(mode);
#endif
}

// The part of a thread of the team.
static void join(void* data) {
  Job* job = (Job*)data;
  unsigned own = rounding_mode();
  if (__atomic_load_n(&job->next, __ATOMIC_RELAXED) >= job->count)
    __atomic_store_n(&job->late, 1, __ATOMIC_RELAXED);
  set_rounding(job->rounding);
  if (take_items(job)) __atomic_store_n(&job->able, 1, __ATOMIC_RELAXED);
  set_rounding(own);
}

static void* work_for_ever(void*) {
  pthread_mutex_lock(&lock);
  for (;;) {
    Job* job = jobs;
    while (job && (job->helpers >= job->most_helpers ||
                   __atomic_load_n(&job->next, __ATOMIC_RELAXED) >= job->count))
      job = job->following;
    if (!job) {
      pthread_cond_wait(&wanted, &lock);
      continue;
    }
    job->helpers++;
    pthread_mutex_unlock(&lock);
    set_rounding(job->rounding);
    bool able = take_items(job);
    pthread_mutex_lock(&lock);
    if (!able) job->most_helpers--;
    job->helpers--;
    pthread_cond_broadcast(&left);
  }
}

// Run all items on so many threads; every one is done on return, or there is no memory: false.
static bool run_items(const Call& c, I threads, I count, void* more,
                      void (*run)(const Call&, Work&, I, void*)) {
  Job job = {run, &c, more, count, 0, 0, least(threads, count) - 1, 0, 0, rounding_mode(), 0};
  if (job.most_helpers < 1) return take_items(&job);
  if (team && __atomic_load_n(&alone, __ATOMIC_RELAXED) <= 0) {
    team(join, &job, (unsigned)threads, 0);  // all: a smaller team would end the other threads
    I next = job.late ? least(2 * spell, LONGEST) : 1;
    __atomic_store_n(&alone, job.late ? next : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&spell, next, __ATOMIC_RELAXED);
    return job.able;
  }
  __atomic_fetch_sub(&alone, 1, __ATOMIC_RELAXED);
  pthread_mutex_lock(&lock);
  pthread_t made;
  while (workers < job.most_helpers && !pthread_create(&made, 0, work_for_ever, 0))
    pthread_detach(made), workers++;
  job.following = jobs, jobs = &job;
  for (I i = 0; i < job.most_helpers; i++) pthread_cond_signal(&wanted);
  pthread_mutex_unlock(&lock);
  bool done = take_items(&job);
  pthread_mutex_lock(&lock);
  Job** place = &jobs;
  while (*place != &job) place = &(*place)->following;
  *place = job.following;
  while (job.helpers) pthread_cond_wait(&left, &lock);
  pthread_mutex_unlock(&lock);
  return done || job.next >= count;
}

// Scores of keys k0.. of a tile of queries, biased and masked; `raw` those before where a slope
// wants them.
static const float* scores_of(const Call& c, Work& w, I batch, I head, I q0, I width, I k0, I nk,
                              bool masked, I* step) {
  const float* keys =
      rows_of(c, c.k, batch, head / (c.heads / c.kv_heads), k0, nk, c.dim, w.copy, step);
  product<false>(keys, *step, 1, nk, c.dim, w.query, w.scores, width);
  if (c.slope_q) memcpy(w.raw, w.scores, nk * width * sizeof(float));
  if (c.bias_q) c.bias_q(c.S, batch, head, q0, width, k0, nk, w.scores, 0);
  if (masked) c.mask_q(c.S, batch, head, q0, width, k0, nk, w.scores, 0);
  return keys;
}

// Scores of N vectors of columns to weights, relative to a reference m, whose sums are l. Returns
// whether sums of values have to be multiplied by `shrink`: m follows the largest score only where
// this is far above it, which is seldom after the first block.
template <int N>
static bool softmax_of(float* scores, I nk, float* m, float* l, float* shrink) {
  V *at = (V*)scores, top[N], base[N], sum[N];
  bool moved = false;
  for (int x = 0; x < N; x++) top[x] = ((V*)m)[x];
  for (I j = 0; j < nk; j++)
    for (int x = 0; x < N; x++) top[x] = at[j * N + x] > top[x] ? at[j * N + x] : top[x];
  for (int x = 0; x < N; x++) {
    V before = ((V*)m)[x], now = top[x] > before + FAR ? top[x] : before;
    base[x] = now == -INFINITY ? V{} : now, sum[x] = V{};
    V f = exp2_of((before - base[x]) * L2E);
    ((V*)m)[x] = now, ((V*)shrink)[x] = f;
    VI changed = f != 1.f;
    for (int i = 0; i < LANES; i++) moved |= changed[i] != 0;
  }
  for (I j = 0; j < nk; j++)
    for (int x = 0; x < N; x++)
      sum[x] += at[j * N + x] = exp2_of((at[j * N + x] - base[x]) * L2E);
  for (int x = 0; x < N; x++) ((V*)l)[x] = ((V*)l)[x] * ((V*)shrink)[x] + sum[x];
  return moved;
}

static bool softmax_block(float* scores, I nk, I width, float* m, float* l, float* shrink) {
  return (width == STEP       ? softmax_of<STEP / LANES>
          : width == 2 * STEP ? softmax_of<2 * STEP / LANES>
                              : softmax_of<3 * STEP / LANES>)(scores, nk, m, l, shrink);
}

// Each column times its factor.
static void multiply(float* at, I rows, I width, const float* factors) {
  for (I i = 0; i < rows; i++)
    for (I x = 0; x < width; x += LANES) *(V*)(at + i * width + x) *= *(const V*)(factors + x);
}

static void forward_tile(const Call& c, Work& w, I batch, I head, I q0, I count, I width,
                         bool careful = false) {
  I step, kv_head = head / (c.heads / c.kv_heads);
  const float* q = rows_of(c, c.q, batch, head, q0, count, c.dim, w.copy, &step);
  transposed(q, step, count, c.dim, width, (float)c.scale, w.query);
  float *m = w.row, *l = w.row + TILE, *shrink = w.row + 2 * TILE;
  for (I i = 0; i < width; i++) m[i] = -INFINITY, l[i] = 0.f;
  memset(w.sums, 0, c.value_dim * width * sizeof(float));
  Spans s = spans_of(c, batch, head, q0, q0 + count - 1, w.ends);
  bool cut = false;
  over_blocks(s, [&](I k0, I nk, bool masked) {
    cut |= masked;
    scores_of(c, w, batch, head, q0, width, k0, nk, masked, &step);
    if (softmax_block(w.scores, nk, width, m, l, shrink))
      multiply(w.sums, c.value_dim, width, shrink);
    const float* v = rows_of(c, c.v, batch, kv_head, k0, nk, c.value_dim, w.copy, &step);
    add_kept(masked && careful, v, step, c.value_dim, nk, w.scores, w.sums, width, w.tame);
  });
  if (cut && !careful && wild(w.sums, width, c.value_dim, width))
    return forward_tile(c, w, batch, head, q0, count, width, true);  // of values that are dropped?
  for (I i = 0; i < count; i++) {
    shrink[i] = l[i] == 0.f ? 0.f : 1.f / l[i];
    if (c.lse)
      c.lse[(batch * c.heads + head) * c.q_len + q0 + i] =
          l[i] == 0.f ? -INFINITY : m[i] + logf(l[i]);
  }
  for (I i = count; i < width; i++) shrink[i] = 0.f;
  multiply(w.sums, c.value_dim, width, shrink);
  put_rows(c, c.out, batch, head, q0, count, c.value_dim, width, w.sums, 1.f, w.copy);
}

static inline float sum_of(V x) {
  float s[LANES];
  memcpy(s, &x, sizeof s);
  for (int n = LANES / 2; n; n /= 2)
    for (int i = 0; i < n; i++) s[i] += s[i + n];
  return s[0];
}

// One query alone: its keys are the lanes.
static void forward_row(const Call& c, Work& w, I batch, I head, I q0) {
  I step, kv_head = head / (c.heads / c.kv_heads);
  const float* q = rows_of(c, c.q, batch, head, q0, 1, c.dim, w.copy, &step);
  float *query = w.query, *s = w.scores, *out = w.sums, m = -INFINITY, l = 0.f;
  for (I d = 0; d < c.dim; d++) query[d] = q[d] * (float)c.scale;
  memset(out, 0, c.value_dim * sizeof(float));
  Spans found = spans_of(c, batch, head, q0, q0, w.ends);
  over_blocks(found, [&](I k0, I nk, bool masked) {
    const float* keys = rows_of(c, c.k, batch, kv_head, k0, nk, c.dim, w.copy, &step);
    for (I j = 0; j < nk; j++) {
      V total = V{};
      float rest = 0.f;
      I d = 0;
      for (; d + LANES <= c.dim; d += LANES) total += *(V*)(query + d) * *(U*)(keys + j * step + d);
      for (; d < c.dim; d++) rest += query[d] * keys[j * step + d];
      s[j] = sum_of(total) + rest;
    }
    for (I j = nk; j < BLOCK; j++) s[j] = 0.f;
    if (c.bias_k) c.bias_k(c.S, batch, head, k0, BLOCK, q0, 1, s, 0);
    if (masked) c.mask_k(c.S, batch, head, k0, BLOCK, q0, 1, s, 0);
    for (I j = nk; j < BLOCK; j++) s[j] = -INFINITY;
    float top = m;
    for (I j = 0; j < BLOCK; j++) top = s[j] > top ? s[j] : top;
    float base = top == -INFINITY ? 0.f : top;
    V f = exp2_of((V{} + (m - base)) * L2E), sum = V{};
    for (I x = 0; x < BLOCK; x += LANES) {
      *(V*)(s + x) = exp2_of((*(V*)(s + x) - base) * L2E);
      sum += *(V*)(s + x);
    }
    l = l * f[0] + sum_of(sum), m = top;
    if (f[0] != 1.f)
      for (I d = 0; d < c.value_dim; d++) out[d] *= f[0];
    const float* v = rows_of(c, c.v, batch, kv_head, k0, nk, c.value_dim, w.copy, &step);
    for (I j = 0; j < nk; j++) {
      float p = s[j];
      if (p == 0.f) continue;  // whatever stands in a value that is dropped
      for (I d = 0; d < c.value_dim; d++) out[d] += p * v[j * step + d];
    }
  });
  float factor = l == 0.f ? 0.f : 1.f / l;
  put_rows(c, c.out, batch, head, q0, 1, c.value_dim, 1, out, factor, w.copy);
  if (c.lse)
    c.lse[(batch * c.heads + head) * c.q_len + q0] = l == 0.f ? -INFINITY : m + logf(l);
}

static I tiles_of(const Call& c, I width) { return (c.q_len + width - 1) / width; }

// Threads that a call is worth: waking one takes longer than a small call.
static int threads_for(const Call& c, I width) {
  I tiles = tiles_of(c, width), all = tiles * c.batch * c.heads;
  if (c.threads == 1 || all == 1) return 1;
  if (all > 256) return (int)c.threads;
  Work w;
  if (!work_of(c, &w)) return 1;
  I pairs = 0;
  for (I i = 0; i < all; i++) {
    I q0 = i % tiles * width, q1 = least(q0 + width, c.q_len) - 1;
    Spans s = spans_of(c, i / tiles / c.heads, i / tiles % c.heads, q0, q1, w.ends);
    for (I j = 0; j < s.touched; j++) pairs += (s.at[2 * j + 1] - s.at[2 * j]) * width;
  }
  return pairs * (c.dim + c.value_dim) < (width == 1 ? 1 << 20 : 1 << 22) ? 1 : (int)c.threads;
}

static I width_of(const Call& c, bool forward) {
  return forward && c.q_len <= 4 ? 1 : c.q_len <= STEP ? STEP : TILE;
}

static void forward_item(const Call& c, Work& w, I item, void*) {
  I width = width_of(c, true), tiles = c.tile_first ? c.tiles : tiles_of(c, width);
  I head = item / tiles % c.heads, batch = item / tiles / c.heads;
  I tile = tiles - 1 - item % tiles;  // the last first: under a causal mask the longest
  if (c.tile_first) {
    I q0 = c.tile_first[tile], count = c.tile_first[tile + 1] - q0;
    forward_tile(c, w, batch, head, q0, count, (count + STEP - 1) / STEP * STEP);
  } else if (width == 1) {
    forward_row(c, w, batch, head, tile);
  } else {
    forward_tile(c, w, batch, head, tile * width, least(width, c.q_len - tile * width), width);
  }
}

// 0, or 1 where there is no memory.
extern "C" int maskalg_forward(const Call* call) {
  pthread_once(&once, prepare);
  I width = width_of(*call, true), tiles = call->tile_first ? call->tiles : tiles_of(*call, width);
  I count = tiles * call->batch * call->heads;
  return !run_items(*call, threads_for(*call, width), count, 0, forward_item);
}

// Weights and gradients of scores, from scores and from the products of gradients and values.
// `m`, `log_sum` and `delta` are vectors where lanes are queries, else one number for each row: that
// of a query which holds NaN leaves alone the keys that the mask drops (`masked`).
template <bool BY_ROW>
static void weights_and_changes(float* s, float* change, I rows, I width, const float* m,
                                const float* log_sum, const float* delta, bool masked) {
  for (I j = 0; j < rows; j++)
    for (I x = 0; x < width; x += LANES) {
      V *p = (V*)(s + j * width + x), *d = (V*)(change + j * width + x);
      V top = BY_ROW ? V{} + m[j] : *(const V*)(m + x);
      V part = BY_ROW ? V{} + log_sum[j] : *(const V*)(log_sum + x);
      V mean = BY_ROW ? V{} + delta[j] : *(const V*)(delta + x);
      V weight = exp2_of(((*p - top) - part) * L2E);
      *p = BY_ROW && masked ? (*p == -INFINITY ? V{} : weight) : weight;
      *d = *p * (*d - mean);
    }
}

// 0 where the weight is: what is dropped takes no part, whatever stands there.
static void without_dropped(const float* p, float* change, I size) {
  for (I x = 0; x < size; x += LANES) {
    V* d = (V*)(change + x);
    *d = *(const V*)(p + x) == 0.f ? V{} : *d;
  }
}

// Largest score and log of the sum of weights: a large lse holds the sum only roughly.
static void row_sums(const Call& c, Work& w, const Spans& s, I batch, I head, I q0, I width,
                     float* m, float* log_sum) {
  float *l = w.row + 6 * TILE, *shrink = w.row + 7 * TILE;
  for (I i = 0; i < width; i++) m[i] = -INFINITY, l[i] = 0.f;
  over_blocks(s, [&](I k0, I nk, bool masked) {
    I step;
    scores_of(c, w, batch, head, q0, width, k0, nk, masked, &step);
    softmax_block(w.scores, nk, width, m, l, shrink);
  });
  for (I i = 0; i < width; i++) {
    if (l[i] == 0.f) m[i] = INFINITY;
    log_sum[i] = l[i] == 0.f ? 0.f : logf(l[i]);
  }
}

// The numbers of each query of a tile that gradients need, into `stats`.
static void statistics(const Call& c, Work& w, I batch, I head, I q0, I width) {
  I count = least(width, c.q_len - q0), step, ostep;
  I place = (batch * c.heads + head) * c.q_len + q0, plane = c.batch * c.heads * c.q_len;
  float *m = w.row, *log_sum = w.row + TILE, *delta = w.row + 2 * TILE;
  const float* o = rows_of(c, c.out, batch, head, q0, count, c.value_dim, w.other, &ostep);
  const float* g = rows_of(c, c.grad, batch, head, q0, count, c.value_dim, w.copy, &step);
  bool rough = false;
  for (I i = 0; i < width; i++) {
    m[i] = INFINITY, log_sum[i] = 0.f, delta[i] = 0.f;
    if (i >= count) continue;
    float lse = c.lse[place + i], total = 0.f;
    for (I d = 0; d < c.value_dim; d++) total += g[i * step + d] * o[i * ostep + d];
    delta[i] = total - (c.grad_lse ? c.grad_lse[place + i] : 0.f);
    m[i] = lse == -INFINITY ? INFINITY : lse;
    rough |= !c.part && fabsf(lse) > 1024.f && lse != -INFINITY;
  }
  if (rough) {
    const float* q = rows_of(c, c.q, batch, head, q0, count, c.dim, w.copy, &step);
    transposed(q, step, count, c.dim, width, (float)c.scale, w.query);
    Spans s = spans_of(c, batch, head, q0, q0 + count - 1, w.ends);
    row_sums(c, w, s, batch, head, q0, width, m, log_sum);
  }
  memcpy(c.stats + place, m, count * sizeof(float));
  memcpy(c.stats + plane + place, log_sum, count * sizeof(float));
  memcpy(c.stats + 2 * plane + place, delta, count * sizeof(float));
}

// Statistics and dQ of a tile of queries.
static void backward_tile(const Call& c, Work& w, I batch, I head, I q0, I width) {
  I count = least(width, c.q_len - q0), step, kv_head = head / (c.heads / c.kv_heads);
  const float *m = w.row, *log_sum = w.row + TILE, *delta = w.row + 2 * TILE;
  statistics(c, w, batch, head, q0, width);
  const float* g = rows_of(c, c.grad, batch, head, q0, count, c.value_dim, w.copy, &step);
  transposed(g, step, count, c.value_dim, width, 1.f, w.grad);
  const float* q = rows_of(c, c.q, batch, head, q0, count, c.dim, w.copy, &step);
  transposed(q, step, count, c.dim, width, (float)c.scale, w.query);
  memset(w.sums, 0, c.dim * width * sizeof(float));
  Spans s = spans_of(c, batch, head, q0, q0 + count - 1, w.ends);
  over_blocks(s, [&](I k0, I nk, bool masked) {
    I vstep;
    const float* keys = scores_of(c, w, batch, head, q0, width, k0, nk, masked, &step);
    const float* v = rows_of(c, c.v, batch, kv_head, k0, nk, c.value_dim, w.other, &vstep);
    product<false>(v, vstep, 1, nk, c.value_dim, w.grad, w.change, width);
    weights_and_changes<false>(w.scores, w.change, nk, width, m, log_sum, delta, masked);
    if (c.slope_q) c.slope_q(c.S, batch, head, q0, width, k0, nk, w.change, w.raw);
    if (masked || c.bias_q) without_dropped(w.scores, w.change, nk * width);
    add_kept(masked, keys, step, c.dim, nk, w.change, w.sums, width, w.tame);
  });
  put_rows(c, c.dq, batch, head, q0, count, c.dim, width, w.sums, (float)c.scale,
           w.copy);
}

static I padded(I dim) { return (dim + STEP - 1) / STEP * STEP; }

// dK and dV of a tile of keys, over the tiles of queries that visit it. `spans` holds, for each
// tile of queries, two counts and the ends. `dq`, unless null, sums dQ of the heads that share the
// keys, [group, q_len, padded(dim)]: its terms, and their order, are those of `backward_tile`.
static void backward_keys(const Call& c, Work& w, I batch, I kv_head, I k0, const I* spans,
                          float* dq) {
  I count = least(TILE, c.kv_len - k0), step, group = c.heads / c.kv_heads, size = most_ends(c) + 2;
  I tiles = (c.q_len + TILE - 1) / TILE, plane = c.batch * c.heads * c.q_len, wide = padded(c.dim);
  const float* k = rows_of(c, c.k, batch, kv_head, k0, count, c.dim, w.copy, &step);
  transposed(k, step, count, c.dim, TILE, 1.f, w.query);
  if (dq)
    for (I i = 0; i < count; i++) {
      memcpy(w.keys + i * wide, k + i * step, c.dim * sizeof(float));
      memset(w.keys + i * wide + c.dim, 0, (wide - c.dim) * sizeof(float));
    }
  const float* v = rows_of(c, c.v, batch, kv_head, k0, count, c.value_dim, w.copy, &step);
  transposed(v, step, count, c.value_dim, TILE, 1.f, w.grad);
  float *of_key = w.sums, *of_value = w.more;
  memset(of_key, 0, c.dim * TILE * sizeof(float));
  memset(of_value, 0, c.value_dim * TILE * sizeof(float));
  for (I head = kv_head * group; head < (kv_head + 1) * group; head++) {
    I part = least(batch, c.mask_batches - 1) * c.mask_heads + least(head, c.mask_heads - 1);
    for (I tile = 0; tile < tiles; tile++) {
      const I* found = spans + (part * tiles + tile) * size;
      Spans s = {found[0], found[1], found + 2, found + 2 + 2 * most_touched(c)};
      if (!meets(s.at, s.touched, k0, k0 + count)) continue;
      bool masked = may_drop(s, k0, k0 + count);
      I q0 = tile * TILE, nq = least(TILE, c.q_len - q0), gstep;
      I place = (batch * c.heads + head) * c.q_len + q0;
      const float* rows = rows_of(c, c.q, batch, head, q0, nq, c.dim, w.copy, &step);
      float* q = w.copy;
      for (I i = 0; i < nq; i++)
        for (I d = 0; d < c.dim; d++) q[i * c.dim + d] = rows[i * step + d] * (float)c.scale;
      const float* g = rows_of(c, c.grad, batch, head, q0, nq, c.value_dim, w.other, &gstep);
      product<false>(q, c.dim, 1, nq, c.dim, w.query, w.scores, TILE);
      if (c.slope_k) memcpy(w.raw, w.scores, nq * TILE * sizeof(float));
      if (c.bias_k) c.bias_k(c.S, batch, head, k0, TILE, q0, nq, w.scores, 0);
      if (masked) c.mask_k(c.S, batch, head, k0, TILE, q0, nq, w.scores, 0);
      product<false>(g, gstep, 1, nq, c.value_dim, w.grad, w.change, TILE);
      weights_and_changes<true>(w.scores, w.change, nq, TILE, c.stats + place,
                                c.stats + plane + place, c.stats + 2 * plane + place,
                                masked);
      if (c.slope_k) c.slope_k(c.S, batch, head, k0, TILE, q0, nq, w.change, w.raw);
      if (masked || c.bias_k) without_dropped(w.scores, w.change, nq * TILE);
      add_kept(masked && !dq, g, gstep, c.value_dim, nq, w.scores, of_value, TILE, w.tame);
      add_kept(masked && !dq, q, c.dim, c.dim, nq, w.change, of_key, TILE, w.tame);
      if (dq)
        product<true>(w.change, TILE, 1, nq, count, w.keys,
                      dq + ((head - kv_head * group) * c.q_len + q0) * wide, wide);
    }
  }
  put_rows(c, c.dk, batch, kv_head, k0, count, c.dim, TILE, of_key, 1.f, w.copy);
  put_rows(c, c.dv, batch, kv_head, k0, count, c.value_dim, TILE, of_value, 1.f, w.copy);
}

static bool finite(const Call& c, Work& w, const Tensor& t, I batch, I head, I rows, I dim) {
  for (I first = 0, step; first < rows; first += BLOCK) {
    I count = least(BLOCK, rows - first);
    const float* at = rows_of(c, t, batch, head, first, count, dim, w.copy, &step);
    if (wild(at, step, count, dim)) return false;
  }
  return true;
}

// Whether a head of keys, and all that meets it, is finite.
static bool finite(const Call& c, Work& w, I batch, I kv_head) {
  I group = c.heads / c.kv_heads;
  bool so = finite(c, w, c.k, batch, kv_head, c.kv_len, c.dim) &&
            finite(c, w, c.v, batch, kv_head, c.kv_len, c.value_dim);
  for (I head = kv_head * group; so && head < (kv_head + 1) * group; head++)
    so = finite(c, w, c.q, batch, head, c.q_len, c.dim) &&
         finite(c, w, c.grad, batch, head, c.q_len, c.value_dim);
  return so;
}

// All gradients of one head of keys. Scores are computed once where memory holds dQ of the heads
// that share the keys and all inputs are finite, else once for dQ and once more for dK and dV.
static void head_item(const Call& c, Work& w, I item, void* spans) {
  I batch = item / c.kv_heads, kv_head = item % c.kv_heads, group = c.heads / c.kv_heads;
  I width = width_of(c, false), wide = padded(c.dim), size = group * c.q_len * wide * sizeof(float);
  float* dq = finite(c, w, batch, kv_head) ? (float*)aligned_alloc(64, rounded(size)) : 0;
  if (dq) memset(dq, 0, size);
  for (I head = kv_head * group; head < (kv_head + 1) * group; head++)
    for (I q0 = 0; q0 < c.q_len; q0 += width)
      (dq ? statistics : backward_tile)(c, w, batch, head, q0, width);
  for (I k0 = 0; k0 < c.kv_len; k0 += TILE)
    backward_keys(c, w, batch, kv_head, k0, (const I*)spans, dq);
  for (I i = 0; dq && i < group * c.q_len; i++) {
    I at = batch * c.dq.batch + (kv_head * group + i / c.q_len) * c.dq.head + i % c.q_len * c.dq.row;
    for (I d = 0; d < c.dim; d++)
      put(c, c.dq, at + d * c.dq.column, dq[i * wide + d] * (float)c.scale);
  }
  free(dq);
}

static void spans_item(const Call& c, Work&, I item, void* spans) {
  I width = width_of(c, false), tiles = tiles_of(c, width), part = item / tiles;
  I q0 = item % tiles * width, q1 = least(q0 + width, c.q_len) - 1;
  I* at = (I*)spans + item * (most_ends(c) + 2);
  Spans s = spans_of(c, part / c.mask_heads, part % c.mask_heads, q0, q1, at + 2);
  at[0] = s.touched, at[1] = s.unfull;
}

static void queries_item(const Call& c, Work& w, I item, void*) {
  I width = width_of(c, false), tiles = tiles_of(c, width);
  I q0 = (tiles - 1 - item % tiles) * width;
  backward_tile(c, w, item / tiles / c.heads, item / tiles % c.heads, q0, width);
}

static void keys_item(const Call& c, Work& w, I item, void* spans) {
  I tiles = (c.kv_len + TILE - 1) / TILE;
  I batch = item / tiles / c.kv_heads, kv_head = item / tiles % c.kv_heads;
  backward_keys(c, w, batch, kv_head, item % tiles * TILE, (const I*)spans, 0);
}

// Whether threads take whole heads: five products of matrices in place of seven, the same bits, but
// fewer items than threads may need to end together, and memory for dQ.
static bool by_heads(const Call& c, I threads) {
  I items = c.batch * c.kv_heads, turns = (items + threads - 1) / threads;
  I size = c.heads / c.kv_heads * c.q_len * padded(c.dim) * sizeof(float);
  return turns * threads * 6 <= items * 7 && size <= MOST_MEMORY;
}

// 0, or 1 where there is no memory.
extern "C" int maskalg_backward(const Call* call) {
  pthread_once(&once, prepare);
  const Call& c = *call;
  I width = width_of(c, false), tiles = tiles_of(c, width);
  I threads = threads_for(c, width), key_tiles = (c.kv_len + TILE - 1) / TILE;
  I parts = c.mask_batches * c.mask_heads * tiles;
  I* spans = (I*)malloc(parts * (most_ends(c) + 2) * sizeof(I));
  if (!spans) return 1;
  bool done = run_items(c, 1, parts, spans, spans_item);
  if (by_heads(c, threads))
    done = done && run_items(c, threads, c.batch * c.kv_heads, spans, head_item);
  else
    done = done && run_items(c, threads, tiles * c.batch * c.heads, 0, queries_item) &&
           run_items(c, threads, key_tiles * c.batch * c.kv_heads, spans, keys_item);
  free(spans);
  return !done;
}
