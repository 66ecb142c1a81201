// The compiler neither knows a pointer afterwards nor computes it in another way. Otherwise GCC
// also computes where a loop ends, and keeps that in a register.
#if defined(__GNUC__)
#define UTVM_SCALAR_KEEP(pointer) __asm__("" : "+r"(pointer))
#else
#define UTVM_SCALAR_KEEP(pointer) ((void)(pointer))
#endif
