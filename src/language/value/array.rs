//! Arrays: elements that an expression or a definition made, or those of a parsed JSON text.

use std::sync::Arc;

use super::Value;
use super::parsed::Block;

/// The elements of an array, shared.
#[derive(Clone, Debug)]
pub enum Array {
    /// Values of their own.
    Values(Arc<Vec<Value>>),
    /// Elements of a parsed text. Each becomes a value when it is asked for.
    Parsed(Block),
}

impl Array {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Values(items) => items.len(),
            Self::Parsed(block) => block.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`.
    pub fn get(&self, index: usize) -> Option<Value> {
        match self {
            Self::Values(items) => items.get(index).cloned(),
            Self::Parsed(block) => block.element(index),
        }
    }

    /// The elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = Value> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Whether both are the same elements in memory.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Values(a), Self::Values(b)) => Arc::ptr_eq(a, b),
            (Self::Parsed(a), Self::Parsed(b)) => a.is_same(b),
            _ => false,
        }
    }
}

impl From<Vec<Value>> for Array {
    fn from(items: Vec<Value>) -> Self {
        Self::Values(Arc::new(items))
    }
}

impl PartialEq for Array {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }
}
