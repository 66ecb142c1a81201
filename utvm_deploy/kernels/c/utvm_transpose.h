// to[column * to_pitch + row] = from[row * from_pitch + column], four by four.
static inline void utvm_transpose(const int8_t *from, int8_t *to, int32_t rows, int32_t columns,
                                  int32_t from_pitch, int32_t to_pitch) {
    const int32_t rest = rows & 3;
    for (int32_t fours = rows >> 2; fours > 0; fours--, from += 4 * from_pitch, to += 4) {
        const int8_t *line = from;
        int8_t *place = to;
        int32_t column = 0;
        for (; column + 4 <= columns; column += 4, line += 4, place += 4 * to_pitch) {
            uint32_t w[4];
            for (int32_t i = 0; i < 4; i++) {
                __builtin_memcpy(&w[i], line + i * from_pitch, 4);
            }
            const uint32_t even = 0x00FF00FFu;
            uint32_t a = (w[0] & even) | (w[1] & even) << 8;
            uint32_t b = (w[2] & even) | (w[3] & even) << 8;
            uint32_t c = (w[0] >> 8 & even) | (w[1] & ~even);
            uint32_t d = (w[2] >> 8 & even) | (w[3] & ~even);
            w[0] = (a & 0xFFFFu) | b << 16;
            w[1] = (c & 0xFFFFu) | d << 16;
            w[2] = a >> 16 | (b & 0xFFFF0000u);
            w[3] = c >> 16 | (d & 0xFFFF0000u);
            for (int32_t i = 0; i < 4; i++) {
                __builtin_memcpy(place + i * to_pitch, &w[i], 4);
            }
        }
        for (; column < columns; column++, line++, place += to_pitch) {
            for (int32_t i = 0; i < 4; i++) {
                place[i] = line[i * from_pitch];
            }
        }
    }
    for (int32_t row = 0; row < rest; row++, from += from_pitch, to++) {
        for (int32_t column = 0; column < columns; column++) {
            to[column * to_pitch] = from[column];
        }
    }
}
