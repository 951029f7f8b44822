// SPDX-License-Identifier: Apache-2.0
// Vectors of the instruction set that a translation unit is compiled for, through the compiler's
// vector extensions. No std:: here or in what includes this: a template of the standard library,
// compiled for AVX2 too, could replace the one that every machine can run.
#pragma once

#include <cstdint>
#include <cstring>

#include "abi.h"

#if defined(__AVX2__)
#include <immintrin.h>
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

namespace ISA {

typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t Ints __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t Words __attribute__((vector_size(VECTOR_BYTES)));
typedef float LooseFloats __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef uint32_t LooseWords __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));
typedef int16_t Shorts __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef int8_t Bytes __attribute__((vector_size(VECTOR_BYTES / 4)));

constexpr int LANES = VECTOR_BYTES / 4;
constexpr int VECTORS = PANEL / LANES;  // of a panel's line

constexpr int smaller(int a, int b) { return a < b ? a : b; }
inline int larger(int a, int b) { return a > b ? a : b; }
inline int up(int value, int step) { return (value + step - 1) / step * step; }

inline Floats load(const float* from) { return *reinterpret_cast<const LooseFloats*>(from); }
inline void store(float* to, Floats value) { *reinterpret_cast<LooseFloats*>(to) = value; }
inline Floats splat(float value) { return value - Floats{}; }
inline Floats maximum(Floats a, Floats b) { return a > b ? a : b; }
inline Floats absolute(Floats a) { return (Floats)((Words)a & 0x7fffffffu); }

inline Floats widen(const uint16_t* bfloats) {
  Halves halves;
  memcpy(&halves, bfloats, sizeof halves);
  return (Floats)(__builtin_convertvector(halves, Words) << 16);
}

inline Floats widen(const int8_t* numbers) {
  Bytes bytes;
  memcpy(&bytes, numbers, sizeof bytes);
  return __builtin_convertvector(__builtin_convertvector(bytes, Ints), Floats);
}

inline float widen_one(uint16_t bfloat) {
  uint32_t bits = static_cast<uint32_t>(bfloat) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

// To the nearest, ties to even. Of finite numbers.
inline uint16_t narrow_one(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Lanes that lie `step` apart change places.
inline Floats exchanged(Floats a, int step) {
  Ints from;
  for (int lane = 0; lane < LANES; ++lane) from[lane] = lane ^ step;
  return __builtin_shuffle(a, from);
}

inline float sum(Floats a) {
  for (int step = LANES / 2; step > 0; step /= 2) a += exchanged(a, step);
  return a[0];
}

inline float highest(Floats a) {
  for (int step = LANES / 2; step > 0; step /= 2) a = maximum(exchanged(a, step), a);
  return a[0];
}

constexpr float ROUNDER = 12582912.0f;  // adding 1.5 * 2^23 rounds to a whole number

inline Floats rounded(Floats a) { return (a + ROUNDER) - ROUNDER; }

// e^x within 2e-7 of it, relative; x is cut to what a float can hold.
inline Floats exponential(Floats x) {
  x = x < -87.0f ? splat(-87.0f) : x;
  x = x > 88.0f ? splat(88.0f) : x;
  Floats shifted = x * 1.44269504f + ROUNDER;
  Floats whole = shifted - ROUNDER;
  Floats rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Floats poly = splat(1.0f / 5040);
  poly = poly * rest + 1.0f / 720;
  poly = poly * rest + 1.0f / 120;
  poly = poly * rest + 1.0f / 24;
  poly = poly * rest + 1.0f / 6;
  poly = poly * rest + 0.5f;
  poly = poly * rest + 1.0f;
  poly = poly * rest + 1.0f;
  Ints power = __builtin_convertvector(whole, Ints);
  return poly * (Floats)((power + 127) << 23);
}

inline Floats sigmoid(Floats x) { return 1.0f / (1.0f + exponential(-x)); }

inline Floats activate(Floats x, int activation) {
  if (activation == SILU) return x * sigmoid(x);
  return x * sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));  // (1 + tanh y) / 2 = s(2 y)
}

}  // namespace ISA
