//! `@NAME@`: a neural network in an arena that you own. Written by utvm_deploy @VERSION@.
//!
//! The computation is the C in `@SOURCE_DIR@/`; `README.md` says what it was made of. There is no
//! heap and no global state, so several models do not disturb each other.

#![no_std]

/// Bytes of RAM that a model needs.
pub const ARENA_BYTES: usize = @ARENA_SIZE@;

@RUST_TYPES@

/// The RAM of one model. Put it on the stack, into a `static`, or where you like.
#[repr(C, align(@ARENA_ALIGN@))]
pub struct Arena([u8; ARENA_BYTES]);

impl Arena {
    /// An arena without a model.
    pub const fn new() -> Self {
        Arena([0; ARENA_BYTES])
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}
@RUST_POOLS@
/// The model in its arena.
pub struct Model<'a> {
    arena: &'a mut Arena,
@RUST_POOL_FIELDS@}

impl<'a> Model<'a> {
    /// A model that has not run yet.
    pub fn new(arena: &'a mut Arena@RUST_POOL_OWNED@) -> Self {
        let @RUST_MUT@model = Model { arena@RUST_POOL_NAMES@ };
@RUST_NEW@    }

    /// Copies the input into the arena, runs the model, and gives what it computed.
    pub fn run(&mut self@RUST_PARAMETERS@) -> @RUST_RESULT@ {
@RUST_COPIES@        self.run_in_place();
        @RUST_RESULTS@
    }

    /// Runs the model with what the input's place in the arena has.
    pub fn run_in_place(&mut self) {
        // SAFETY: the arena has the size and the alignment that the C asks for.
        unsafe { @NAME@_run(self.arena.0.as_mut_ptr()@RUST_POOL_SELF@) }
    }
@RUST_ACCESS@@RUST_RESET@}

/// Runs the golden vectors, as `@NAME@_selftest` does: whether all passed, and a line of text.
pub fn selftest<F: FnMut(u8)>(arena: &mut Arena@RUST_POOL_LENT@, mut put: F) -> bool {
    extern "C" fn forward<F: FnMut(u8)>(character: u8, context: *mut F) {
        // SAFETY: the context is the caller's `put`, which outlives the call.
        unsafe { (*context)(character) }
    }
    // SAFETY: as in `run_in_place`; C only hands `context` to `forward`, whose type it has.
    unsafe {
        let forward: extern "C" fn(u8, *mut F) = forward::<F>;
        let forward = core::mem::transmute::<extern "C" fn(u8, *mut F), Put>(forward);
        @NAME@_selftest(arena.0.as_mut_ptr()@RUST_POOL_POINTERS@, forward, (&mut put as *mut F).cast()) == 0
    }
}

type Put = extern "C" fn(u8, *mut u8);

extern "C" {
    fn @NAME@_run(arena: *mut u8@RUST_POOL_TYPES@);
@RUST_EXTERN@    fn @NAME@_selftest(arena: *mut u8@RUST_POOL_TYPES@, put: Put, context: *mut u8) -> i32;
}
