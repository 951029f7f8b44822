// SPDX-License-Identifier: Apache-2.0
// The innermost loop over int8 weights. Inputs come as int16 with a scale a group: as exact as
// floats for this purpose, and a 16-bit multiply-add does twice the work of a float's.
#pragma once

#include "tile.h"

namespace ISA {

// A product is a register of its own before it is added, so that fewer rows fit than with floats.
constexpr int INT8_ROWS = smaller(4, TILE_ROWS);
constexpr float SHORT_MAX = 32767.0f;

struct QuantisedLines {
  const int16_t* numbers;  // [rows, groups * GROUP]
  const float* scales;     // [rows, groups]
  int groups;
};

inline void quantise_group(const float* values, int16_t* numbers, float* scale) {
  Floats most{};
  for (int i = 0; i < GROUP; i += LANES) most = maximum(absolute(load(values + i)), most);
  float largest = highest(most);
  float factor = largest > 0 ? SHORT_MAX / largest : 0;
  *scale = largest / SHORT_MAX;
  for (int i = 0; i < GROUP; i += LANES) {
    Floats whole = rounded(load(values + i) * factor);
    Shorts shorts = __builtin_convertvector(__builtin_convertvector(whole, Ints), Shorts);
    memcpy(numbers + i, &shorts, sizeof shorts);
  }
}

inline void quantise_line(const float* values, int size, int16_t* numbers, float* scales) {
  for (int from = 0; from < size; from += GROUP) {
    int left = smaller(GROUP, size - from);
    float padded[GROUP] = {};
    if (left < GROUP) memcpy(padded, values + from, left * sizeof(float));
    const float* group = left < GROUP ? padded : values + from;
    quantise_group(group, numbers + from, scales + from / GROUP);
  }
}

#if defined(__AVX2__)

// Weights of inputs k and k + 1 lie together, column by column.
template <int ROWS>
inline void group_products(const int16_t* input, long stride, const int8_t* weight,
                           Ints (&sums)[ROWS][VECTORS]) {
  __m256i totals[ROWS][2] = {};
#pragma GCC unroll 2
  for (int k = 0; k < GROUP; k += 2) {
    const __m128i* line = reinterpret_cast<const __m128i*>(weight + k * PANEL);
    __m256i low = _mm256_cvtepi8_epi16(_mm_loadu_si128(line));
    __m256i high = _mm256_cvtepi8_epi16(_mm_loadu_si128(line + 1));
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      int32_t pair;
      memcpy(&pair, input + r * stride + k, 4);
      __m256i factor = _mm256_set1_epi32(pair);
      totals[r][0] = _mm256_add_epi32(totals[r][0], _mm256_madd_epi16(low, factor));
      totals[r][1] = _mm256_add_epi32(totals[r][1], _mm256_madd_epi16(high, factor));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < 2; ++v) sums[r][v] = (Ints)totals[r][v];
}

#else

template <int ROWS>
inline void group_products(const int16_t* input, long stride, const int8_t* weight,
                           Ints (&sums)[ROWS][VECTORS]) {
  int32_t totals[ROWS][PANEL] = {};
  for (int k = 0; k < GROUP; k += 2) {
    const int8_t* line = weight + k * PANEL;
    for (int r = 0; r < ROWS; ++r) {
      int first = input[r * stride + k], second = input[r * stride + k + 1];
      for (int c = 0; c < PANEL; ++c)
        totals[r][c] += first * line[2 * c] + second * line[2 * c + 1];
    }
  }
  memcpy(sums, totals, sizeof totals);
}

#endif

template <int ROWS>
inline void tile_int8(QuantisedLines input, int row, const int8_t* panel, float* output) {
  Floats results[ROWS][VECTORS] = {};
  long stride = static_cast<long>(input.groups) * GROUP;
  const int16_t* numbers = input.numbers + row * stride;
  const float* factors = input.scales + static_cast<long>(row) * input.groups;
  for (int g = 0; g < input.groups; ++g, panel += GROUP_BYTES) {
    Ints sums[ROWS][VECTORS];
    group_products<ROWS>(numbers + g * GROUP, stride, panel, sums);
    const float* scales = reinterpret_cast<const float*>(panel + GROUP * PANEL);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      Floats factor = splat(factors[static_cast<long>(r) * input.groups + g]);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v)
        results[r][v] += __builtin_convertvector(sums[r][v], Floats) *
                         (factor * load(scales + v * LANES));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
    for (int v = 0; v < VECTORS; ++v) store(output + r * PANEL + v * LANES, results[r][v]);
}

inline void tiles_int8(QuantisedLines input, int rows, const int8_t* panel, float* output) {
  for_tiles<INT8_ROWS>(rows, [=](auto height, int row) {
    tile_int8<decltype(height)::ROWS>(input, row, panel, output + row * PANEL);
  });
}

}  // namespace ISA
