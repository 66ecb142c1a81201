for (int32_t c = 0; c < channels; c++, weights += window_rows * window_columns, scaling += 4) {
    const int32_t run = window_columns * column_pitch;
    int32_t geometry[] = {window_rows, run, row_pitch - run, column_pitch, step};
    for (int32_t p = 0; p < count; p += 2) {
        // The last one twice.
        const int32_t pixels = p + 1 < count ? 2 : 1;
        geometry[4] = pixels == 2 ? step : 0;
        int32_t sums[] = {scaling[0], scaling[0]};
        utvm_plain_taps(rows + p * step + c, weights, geometry, sums);
        for (int32_t n = 0; n < pixels; n++) {
            int32_t value = utvm_plain_scale(sums[n], scaling[1], scaling[2], scaling[3]);
            output[(p + n) * channels + c] = (int8_t)utvm_clamp(value, limits[0], limits[1]);
        }
    }
}
