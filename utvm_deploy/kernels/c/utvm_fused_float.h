// --float-math fast: compilers may fuse a product and a sum of float32, where the core can.
// Helium's instructions replace denormals by 0, so GCC still makes none of them from loops.
#if defined(__clang__)
#pragma STDC FP_CONTRACT ON
#define UTVM_EXACT_FLOAT
#elif defined(__GNUC__) && defined(__ARM_FEATURE_MVE)
#define UTVM_EXACT_FLOAT __attribute__((optimize("fp-contract=fast", "no-tree-vectorize")))
#elif defined(__GNUC__)
#define UTVM_EXACT_FLOAT __attribute__((optimize("fp-contract=fast")))
#else
#define UTVM_EXACT_FLOAT
#endif
