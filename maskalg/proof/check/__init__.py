"""The certificate: claims of a proof, proved again by other means."""
