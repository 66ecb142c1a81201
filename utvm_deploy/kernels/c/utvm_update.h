// Where a part begins that may begin at 0 to most: the nearest of these places.
static inline int32_t utvm_start(int64_t start, int32_t most) {
    return start < 0 ? 0 : start > most ? most : (int32_t)start;
}

// Copies bytes to a place that does not overlap them, unless they are there already.
static inline void utvm_unless_there(int8_t *to, const int8_t *from, int32_t count) {
    if (to != from) {
        utvm_move(to, from, count);
    }
}
