for (; pixels > 0; pixels--, first += first_step, second += second_step, to += to_step / 2) {
    to[0] = first[0];
    to[1] = first[2];
    to[2] = second[0];
    to[3] = second[2];
    to[4] = first[1];
    to[5] = second[1];
}
