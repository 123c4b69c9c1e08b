//! The part of a picture that the window shows, and its level of detail.

use leptos::prelude::*;

use super::GraphState;
use super::visible_pieces::{Piece, Pieces};

/// Below this zoom, text is unreadable and arrows are invisible.
const FAR_ZOOM: f64 = 0.5;

/// The level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Text is readable.
    Near,
    /// Only shapes and colors are visible.
    Far,
}

/// The pieces of a picture, and the number of pictures before it.
type NumberedPieces = (u32, Pieces);

/// The visible pieces, and their level of detail.
#[derive(Clone, Copy)]
pub(super) struct Viewport {
    pub(super) detail: Memo<Detail>,
    cut: Memo<NumberedPieces>,
    cells: Memo<Vec<usize>>,
    strands: Memo<Vec<usize>>,
}

impl Viewport {
    pub(super) fn of(shown: GraphState) -> Self {
        let cut = Memo::new(move |last: Option<&NumberedPieces>| {
            (last.map_or(0, |(number, _)| number + 1), Pieces::of(&shown.layout.read()))
        });
        let near = Memo::new(move |_| {
            let (cut, window) = (cut.read(), shown.window.get());
            (cut.1.in_sight(&cut.1.boxes, window), cut.1.in_sight(&cut.1.wires, window))
        });
        Self {
            detail: Memo::new(
                move |_| if shown.zoom.get() < FAR_ZOOM { Detail::Far } else { Detail::Near },
            ),
            cut,
            cells: Memo::new(move |_| near.read().0.clone()),
            strands: Memo::new(move |_| near.read().1.clone()),
        }
    }

    /// The ids of the visible cells of boxes: the number of the picture and the index of the cell.
    pub(super) fn cells(self) -> Vec<(u32, usize)> {
        let number = self.cut.read().0;
        self.cells.read().iter().map(|at| (number, *at)).collect()
    }

    /// The ids of the visible strands of edges.
    pub(super) fn strands(self) -> Vec<(u32, usize)> {
        let number = self.cut.read().0;
        self.strands.read().iter().map(|at| (number, *at)).collect()
    }

    /// The boxes of a cell. Empty if the cell belongs to an earlier picture.
    pub(super) fn boxes_of(self, name: (u32, usize)) -> Vec<usize> {
        self.members(name, |pieces| &pieces.boxes)
    }

    /// The edges of a strand. Empty if the strand belongs to an earlier picture.
    pub(super) fn edges_of(self, name: (u32, usize)) -> Vec<usize> {
        self.members(name, |pieces| &pieces.wires)
    }

    // Untracked: a piece never changes, and a new picture has new pieces.
    fn members(
        self,
        (number, at): (u32, usize),
        of: impl Fn(&Pieces) -> &Vec<Piece>,
    ) -> Vec<usize> {
        let cut = self.cut.read_untracked();
        let piece = (cut.0 == number).then(|| of(&cut.1).get(at)).flatten();
        piece.map(|piece| piece.members.clone()).unwrap_or_default()
    }
}
