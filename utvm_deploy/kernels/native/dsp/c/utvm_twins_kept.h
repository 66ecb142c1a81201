// The output overwrites the rows above the next strip, whose first row is `row`: some are kept.
UTVM_ONCE static void utvm_keep_rows(const int8_t *image, int8_t *kept, int32_t row,
                                     int32_t channels, const int32_t *geometry) {
    struct utvm_twins_window w;
    __builtin_memcpy(&w, geometry, sizeof w);
    for (int32_t r = 0; r < w.kept && row + r < w.height; r++) {
        utvm_keep_row(kept + r * w.row, image + (row + r) * w.row, 0, channels, &w);
    }
}
