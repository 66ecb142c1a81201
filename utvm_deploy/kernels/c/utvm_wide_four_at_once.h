// As utvm_wide_four.h, for cores with many registers: each element is loaded once for four rows.
const int8_t *a = matrix, *b = a + pitch, *c = b + pitch, *d = c + pitch;
const int16_t *const end = vector + count;
int32_t first = 0, second = 0, third = 0, fourth = 0;
for (; vector != end; vector += 4, a += 4, b += 4, c += 4, d += 4) {
    for (int32_t i = 0; i < 4; i++) {
        // The inner two of four bytes are exchanged.
        const int32_t k = i == 1 || i == 2 ? 3 - i : i;
        // All loads first: a core may wait for one whose value is used at once.
        const int32_t x = vector[i], p = a[k], q = b[k], r = c[k], s = d[k];
        first += x * p;
        second += x * q;
        third += x * r;
        fourth += x * s;
    }
}
sums[0] = first;
sums[1] = second;
sums[2] = third;
sums[3] = fourth;
