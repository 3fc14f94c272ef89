/* Never compiled: the workers of these tests only say that they do. */
