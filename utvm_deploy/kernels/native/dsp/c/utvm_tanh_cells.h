(void)table;
for (int32_t i = 0; i < count; i++) {
    pairs[2 * i] = utvm_tanh16(pairs[2 * i], scaling[0] + 2);
}
