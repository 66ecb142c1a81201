"""TFLite Micro's signal operators as C routines, which every core has."""
