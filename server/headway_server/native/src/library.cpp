// SPDX-License-Identifier: Apache-2.0
// The functions that Python calls. The instruction set is chosen when an engine is opened.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "abi.h"
#include "engine.h"
#include "pack.h"
#include "pool.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace portable {
extern const Kernels kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kernels;
}
#endif

namespace {

const Kernels* choose(const char* name) {
#if defined(__x86_64__)
  bool usable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (usable && (!name || !std::strcmp(name, avx2::kernels.name))) return &avx2::kernels;
#endif
  return !name || !std::strcmp(name, portable::kernels.name) ? &portable::kernels : nullptr;
}

}  // namespace

char* engine_reserve(Engine* engine, size_t bytes) {
  if (bytes <= engine->capacity) return engine->memory;
  std::free(engine->memory);
  engine->memory = static_cast<char*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  engine->capacity = engine->memory ? bytes : 0;
  return engine->memory;
}

// `name` of an instruction set, or null for the best; null where it or the threads cannot be had.
EXPORT Engine* headway_open(int threads, const char* name) {
  const Kernels* kernels = choose(name);
  if (!kernels) return nullptr;
  try {
    return new Engine{pool_open(threads), kernels, nullptr, 0};
  } catch (...) {
    return nullptr;
  }
}

EXPORT void headway_close(Engine* engine) {
  pool_close(engine->pool);
  std::free(engine->memory);
  delete engine;
}

EXPORT const char* headway_name(const Engine* engine) { return engine->kernels->name; }

EXPORT int headway_forward(Engine* engine, const Model* model, const Batch* batch) {
  return engine->kernels->forward(engine, model, batch);
}

EXPORT int headway_multiply(Engine* engine, const Matrix* matrix, const float* input, int rows,
                            float* output) {
  return engine->kernels->multiply(engine, matrix, input, rows, output);
}

EXPORT int headway_attend(Engine* engine, const Model* model, int layer, const Batch* batch,
                          float* qkv, float* output) {
  return engine->kernels->attend(engine, model, layer, batch, qkv, output);
}

EXPORT void headway_normalise(Engine* engine, const float* input, const float* weight, int size,
                              float epsilon, float* output) {
  engine->kernels->normalise(input, weight, size, epsilon, output);
}

EXPORT void headway_pack(Engine* engine, const Source* source, int kind, void* panels, int first,
                         int step) {
  pack(engine->pool, *source, kind, panels, first, step);
}
