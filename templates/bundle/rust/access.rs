
    /// Where @WHAT@ @INDEX@ is in the arena.
    pub fn @WHAT@_@INDEX@(&@MUT@self) -> &@MUT@@KIND@@INDEX@ {
        // SAFETY: within the arena, aligned for its type, of which every pattern of bits is valid.
        unsafe { &@MUT@*self.arena.0.as_@MUT_@ptr().add(@OFFSET@).cast::<@KIND@@INDEX@>() }
    }
