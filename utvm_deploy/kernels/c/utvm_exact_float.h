// Every sum and product of float32 is rounded. Compilers would fuse them, and
// GCC would make loops of Helium's instructions, which replace denormals by 0.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#define UTVM_EXACT_FLOAT
#elif defined(__GNUC__) && defined(__ARM_FEATURE_MVE)
#define UTVM_EXACT_FLOAT __attribute__((optimize("fp-contract=off", "no-tree-vectorize")))
#elif defined(__GNUC__)
#define UTVM_EXACT_FLOAT __attribute__((optimize("fp-contract=off")))
#else
#define UTVM_EXACT_FLOAT
#endif
