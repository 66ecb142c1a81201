// All channels of the pixels of a tile. GCC moves the loads of several steps together, for which
// there are too few registers, unless it is told to leave them.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("no-schedule-insns", "no-tree-reassoc", "no-ivopts")))
#endif
static void TILE(const int8_t *pixels, const int32_t *weights, const int32_t *scaling,
                 const int32_t *limits, int8_t *output, int32_t channels, int32_t depth,
                 int32_t pitch) {
    const int32_t *words = weights;
    (void)depth; // of the C below alone
    BEGIN
    for (int32_t left = channels; left > 0; left -= 4) {
        FINISH
        scaling += SCALING_WORDS;
        output += 4;
    }
}
