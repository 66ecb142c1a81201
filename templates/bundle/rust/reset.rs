
    /// Forgets earlier runs.
    pub fn reset(&mut self) {
        // SAFETY: the arena has the size and the alignment that the C asks for.
        unsafe { @NAME@_reset(self.arena.0.as_mut_ptr()) }
    }
