// SPDX-License-Identifier: Apache-2.0
// The innermost loops: a few lines of inputs times one panel. Each output is one chain of
// multiply-adds over the inputs in order, so that a line's result never depends on its neighbours.
#pragma once

#include "simd.h"

namespace ISA {

#if defined(__AVX2__)
constexpr int TILE_ROWS = 6;  // 12 of the 16 registers
#elif defined(__aarch64__)
constexpr int TILE_ROWS = 4;
#else
constexpr int TILE_ROWS = 2;
#endif

struct FloatLine {
  using Number = float;
  static inline void read(const float* line, Floats (&out)[VECTORS]) {
    for (int v = 0; v < VECTORS; ++v) out[v] = load(line + v * LANES);
  }
};

// A line's columns j and j + 8 lie together as the low and the high half of a word.
struct BfloatLine {
  using Number = uint16_t;
  static inline void read(const uint16_t* line, Floats (&out)[VECTORS]) {
    for (int v = 0; v < VECTORS / 2; ++v) {
      Words words = *reinterpret_cast<const LooseWords*>(line + v * LANES * 2);
      out[v] = (Floats)(words << 16);
      out[VECTORS / 2 + v] = (Floats)(words & 0xffff0000u);
    }
  }
};

template <int N>
struct Height {
  static constexpr int ROWS = N;
};

struct Strides {
  long input, weight, output;
};

// output[r][0..15] (+)= sum over k < depth of input[r][k] * weight[k][0..15]
template <int ROWS, class Line>
inline void tile(const float* input, const typename Line::Number* weight, int depth, float* output,
                 Strides stride, bool adds) {
  Floats sums[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = adds ? load(output + r * stride.output + v * LANES) : Floats{};
  for (int k = 0; k < depth; ++k) {
    Floats line[VECTORS];
    Line::read(weight + k * stride.weight, line);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      Floats factor = splat(input[r * stride.input + k]);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; ++v) sums[r][v] += factor * line[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) store(output + r * stride.output + v * LANES, sums[r][v]);
}

template <int ROWS, class Body>
inline void call_with_height(int height, int row, Body& body) {
  if (height == ROWS) return body(Height<ROWS>{}, row);
  if constexpr (ROWS > 1) call_with_height<ROWS - 1>(height, row, body);
}

// Calls body(constant ROWS, first row) for tiles of about the same height, of HIGHEST at most.
template <int HIGHEST, class Body>
inline void for_tiles(int rows, Body body) {
  for (int row = 0, left = (rows + HIGHEST - 1) / HIGHEST; left > 0; --left) {
    int height = (rows - row + left - 1) / left;
    call_with_height<HIGHEST>(height, row, body);
    row += height;
  }
}

template <class Line>
inline void tiles(const float* input, const typename Line::Number* weight, int rows, int depth,
                  float* output, Strides stride, bool adds) {
  for_tiles<TILE_ROWS>(rows, [=](auto height, int row) {
    tile<decltype(height)::ROWS, Line>(input + row * stride.input, weight, depth,
                                       output + row * stride.output, stride, adds);
  });
}

}  // namespace ISA
