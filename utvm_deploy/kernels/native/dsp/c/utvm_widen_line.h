for (int32_t row = 0; row < rows; row++) {
    for (int32_t i = 0; i < run; i++) {
        line[row * run + i] = bytes[row * pitch + i];
    }
}
utvm_widen(patches, line, quads, 1, 0);
