//! The beginning of an executor: it takes the settings and the role that the server has.

use crate::clients::Clients;
use crate::cluster::adopt::begin_membership;
use crate::commands::handlers::handlers;
use crate::eviction::evictor;
use crate::executor::Executor;
use crate::keyspace::Keyspace;
use crate::script::cache::Scripts;
use crate::state::State;

impl<'s, 'p> Executor<'s, 'p> {
    pub(crate) fn new(mut keys: Keyspace<'p>, state: &'s mut State) -> Self {
        keys.pubsub.notified = state.config.notified_events;
        keys.pubsub.tracking.keys_max = state.config.tracking_keys_max;
        keys.set_in_one_batch(false);
        let batch_words_max = state.config.batch_words_max(keys.pool().domain());
        evictor::begin(&mut keys, state);
        begin_membership(&keys, state);
        let (clients, marks, replied) = (Clients::default(), Vec::new(), Vec::new());
        let scripts = Scripts::default();
        let handlers = handlers();
        Executor { keys, state, clients, scripts, handlers, marks, replied, batch_words_max, door: None }
    }
}
