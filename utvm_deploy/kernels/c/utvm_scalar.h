// Helium's instructions replace denormals of float32 by 0, and give another
// NaN. So GCC must not make them from loops of float32.
#if defined(__GNUC__) && !defined(__clang__) && defined(__ARM_FEATURE_MVE)
#define UTVM_SCALAR __attribute__((optimize("no-tree-vectorize")))
#else
#define UTVM_SCALAR
#endif
