"""Methods that may change or go in any release; each is one word of the configuration."""
