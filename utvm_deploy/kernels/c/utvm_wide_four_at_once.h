// As utvm_wide_four.h, for cores with many registers: each element is loaded once for four rows.
const int8_t *a = matrix, *b = a + pitch, *c = b + pitch, *d = c + pitch;
const int16_t *const end = vector + count;
int32_t first = 0, second = 0, third = 0, fourth = 0;
for (; vector != end; vector += 4, a += 4, b += 4, c += 4, d += 4) {
    for (int32_t i = 0; i < 4; i++) {
        // The inner two of four bytes are exchanged.
        const int32_t x = vector[i], k = i == 1 || i == 2 ? 3 - i : i;
        first += x * a[k];
        second += x * b[k];
        third += x * c[k];
        fourth += x * d[k];
    }
}
sums[0] = first;
sums[1] = second;
sums[2] = third;
sums[3] = fourth;
