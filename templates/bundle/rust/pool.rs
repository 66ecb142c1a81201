/// Memory for @REGION@, of the board's memories, where the model is fastest.
#[repr(C, align(@ALIGN@))]
pub struct @KIND@([u8; @BYTES@]);

impl @KIND@ {
    /// Memory without content.
    pub const fn new() -> Self {
        @KIND@([0; @BYTES@])
    }
}

impl Default for @KIND@ {
    fn default() -> Self {
        Self::new()
    }
}
