for (; pixels > 0; pixels--, from += from_step, to += to_step / 2) {
    to[0] = from[0];
    to[1] = from[2];
    to[2] = from[1];
    to[3] = from[3];
}
