for (; pairs > 0; pairs--, input += 2, output += 2) {
    int32_t first = (input[0] * multiplier + half) >> shift;
    int32_t second = (input[1] * multiplier + half) >> shift;
    first = utvm_sigmoid16(table, first);
    second = utvm_sigmoid16(table, second);
    output[0] = (int16_t)first;
    output[1] = (int16_t)second;
}
