"""DPView: views from public sizes alone, noisy view tables made consistent, records linked."""
